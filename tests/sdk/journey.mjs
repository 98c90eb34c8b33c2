// Goes the way of a new user in Chromium, from the link that the first start prints to a dashboard that a stranger
// sees. Knows nothing but the link; what it sends is the snippet of the page. Prints a line of JSON for each thing:
//
//     step       a part of the way that worked: what, and millis since the link was opened
//     complaint  a message of the console or an error: text
//
//     journey.mjs NODE_MODULES LINK DIRECTORY_FOR_PICTURES
//
// Without the last nothing is drawn.

import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

import { say } from './driver.mjs'

const [modules, link, pictures] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')
const url = new URL(link).origin

const DEADLINE_MILLIS = 60_000
// The SDK sends what happened every few seconds.
const LIVE_MILLIS = 15_000
const NETWORK = 'https://cdn.jsdelivr.net/npm/posthog-js@1/dist/array.js'
// The SDK sends nothing for a browser that says that it is driven.
const PERSON = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36'

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-blink-features=AutomationControlled',
  ],
})
const began = performance.now()
const step = (what) => say('step', { what, millis: Math.round(performance.now() - began) })
const look = async (page, name) => {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true })
}
const watched = async (context) => {
  const page = await context.newPage()
  page.setDefaultTimeout(DEADLINE_MILLIS)
  page.on('pageerror', (error) => say('complaint', { text: `error: ${error.name}: ${error.message} ${error.stack}` }))
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) {
      say('complaint', { text: `${message.text()} on ${page.url()} ${message.location().url ?? ''}` })
    }
  })
  return page
}

// ---- the link leads to a page that waits

const page = await watched(await browser.newContext({ viewport: { width: 1400, height: 900 } }))
await page.goto(link)
await page.click('button:has-text("Sign in with this link")')
await page.waitForSelector('text=Waiting for the first event')
await look(page, 'waiting')
step('waiting')

// ---- the snippet goes into a page of another origin, which somebody visits

// Whoever signs in is a person, not a visitor.
const pasted = await page.textContent('#html')
const snippet = pasted.replace(/<\/script>\s*$/, "  posthog.identify('ada')\n</script>")
const shop = `<!doctype html><html><head><meta charset="utf-8"><title>Shop</title>
${snippet}
</head><body><h1>Shop</h1><button id="buy">Buy</button></body></html>`
const server = createServer((request, response) => {
  const known = request.url === '/'
  response.writeHead(known ? 200 : 204, { 'content-type': 'text/html; charset=utf-8' }).end(known ? shop : '')
})
await new Promise((listening) => server.listen(0, '127.0.0.1', listening))

const visiting = await browser.newContext({ userAgent: PERSON })
// What the public network would send is the same file of the npm package.
await visiting.route(NETWORK, (route) =>
  route.fulfill({
    contentType: 'application/javascript',
    headers: { 'access-control-allow-origin': '*' },
    body: readFileSync(join(modules, 'posthog-js/dist/array.js')),
  })
)
const visit = await watched(visiting)
await visit.goto(`http://127.0.0.1:${server.address().port}/`)
await page.waitForSelector('text=An event has arrived')
await look(page, 'arrived')
step('arrived')

// ---- the live view has what the visitor does within seconds

await page.click('nav >> text=Live')
await page.waitForSelector('#live-state:text-is("Live")')
await visit.click('#buy')
await page.waitForSelector('tbody[data-live] tr.fresh:has-text("$autocapture")', { timeout: LIVE_MILLIS })
await look(page, 'live')
if (/^[1-9][\d,]* events? in the last minute$/.test(await page.textContent('#live-rate'))) step('live')

// ---- it is in the list of events, and the visitor has a page

const asked = () => page.locator('main')
await page.click('nav >> text=Events >> nth=0')
await page.waitForURL(/activity\/explore/)
for (let tries = 0; tries < 100 && !(await asked().textContent()).includes('$autocapture'); tries += 1) {
  await page.waitForTimeout(100)
  await page.reload()
}
await page.click('main tbody tr td:nth-child(2) a')
await page.waitForSelector('text=What happened')
step('events')

// ---- behind a bar are the persons, and behind a person what happened

await page.goto(`${url}/project/1/insights/trends?a=%24pageview&show=bars`)
await page.click('#result svg a >> nth=-1')
await page.waitForURL(/insights\/trends\/persons/)
await page.click('main tbody tr a >> nth=0')
await page.waitForURL(/\/person\//)
await page.waitForSelector('text=What happened')
step('persons')

// ---- a funnel by forms, saved onto a dashboard

await page.click('nav >> text=Insights')
await page.click('main >> text=Funnel >> nth=0')
await page.waitForSelector('text=Which steps?')
const names = await page.locator('datalist#events option').evaluateAll((all) => all.map((option) => option.value))
await page.fill('input[name=a]', names.find((name) => name === '$pageview'))
await page.fill('input[name=b]', names.find((name) => name === '$autocapture'))
await page.click('button.main:has-text("Show")')
await page.waitForSelector('#result svg')
await look(page, 'funnel')
await page.fill('form.save input[name=name]', 'Visit to click')
await page.selectOption('form.save select', { label: 'a new dashboard' })
await page.click('form.save button')
await page.waitForURL(/dashboard\/\d+$/)
await page.waitForSelector('.tile svg')
await look(page, 'dashboard')
step('saved')

// ---- shared with a stranger

await page.click('text=Edit and share')
await page.click('text=Create public link')
const shared = await page.textContent('#link')
const stranger = await watched(await browser.newContext())
await stranger.goto(shared)
await stranger.waitForSelector('.tile svg')
const told = await stranger.locator('main').textContent()
if (told.includes('Visit to click') && new URL(shared).origin === url) step('shared')
await look(stranger, 'shared')

server.close()
await browser.close()
