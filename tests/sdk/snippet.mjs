// Pastes the snippet of the page for new users into a website, and opens that in Chromium while the server does not
// answer. Prints a line of JSON for each thing:
//
//     visit      the state of the server; millis until the page had loaded; the kinds of methods that could be called
//     missing    a public method of the loaded SDK that the snippet does not queue: name
//     arrived    the state of the server, and the events that it has of the visitor once it answers
//     complaint  an error of the page: text
//
//     snippet.mjs NODE_MODULES URL PERSONAL_KEY
//
// Between the website and the server stands a proxy, which is what is stopped, hangs, or is slow.

import { createServer } from 'node:http'
import { connect, createServer as createProxy } from 'node:net'
import { createRequire } from 'node:module'

import { say } from './driver.mjs'

const [modules, url, personalKey] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')

const DEADLINE_MILLIS = 60_000
// How long the proxy keeps what it has when it is slow.
const SLOW_MILLIS = 8_000
// The SDK sends nothing for a browser that says that it is driven.
const PERSON = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36'
// What of the SDK means nothing before it has come, or is the list that the snippet queues in.
const NOT_QUEUED = ['constructor', 'init', 'push', 'toString', 'getExtension', 'calculateEventProperties']

const sleep = (millis) => new Promise((done) => setTimeout(done, millis))

// A proxy that holds its connections until it is told to answer; `port` is that of an earlier one.
const proxied = async (port) => {
  let answer
  const answers = new Promise((done) => (answer = done))
  const proxy = createProxy((client) => {
    client.on('error', () => client.destroy())
    answers.then(() => {
      const server = connect(new URL(url).port, '127.0.0.1')
      server.on('error', () => client.destroy())
      client.on('close', () => server.destroy())
      client.pipe(server).pipe(client)
    })
  })
  await new Promise((listening) => proxy.listen(port, '127.0.0.1', listening))
  return { port: proxy.address().port, answer, close: () => new Promise((closed) => proxy.close(closed)) }
}

// For each state the port of the server, and what makes it answer.
const STATES = {
  stopped: async () => {
    const { port, close } = await proxied(0)
    await close()
    return { port, recover: async () => (await proxied(port)).answer() }
  },
  hanging: async () => {
    const { port, answer } = await proxied(0)
    return { port, recover: answer }
  },
  slow: async () => {
    const { port, answer } = await proxied(0)
    setTimeout(answer, SLOW_MILLIS)
    return { port, recover: () => {} }
  },
}

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

const reader = await browser.newContext({ extraHTTPHeaders: { authorization: `Bearer ${personalKey}` } })
const read = await reader.newPage()
await read.goto(`${url}/project/1/onboarding`)
const snippet = await read.textContent('#html')
await reader.close()

// Names of the events of a visitor that the server has.
const stored = async (visitor) => {
  const answer = await fetch(`${url}/api/projects/1/query/`, {
    method: 'POST',
    headers: { authorization: `Bearer ${personalKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      query: {
        kind: 'HogQLQuery',
        query: `SELECT DISTINCT event FROM events WHERE properties.visitor = '${visitor}' ORDER BY event`,
      },
    }),
  })
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`)
  return (await answer.json()).results.flat()
}

for (const [state, start] of Object.entries(STATES)) {
  const { port, recover } = await start()
  const shop = `<!doctype html><html><head><meta charset="utf-8"><title>Shop</title>
${snippet.replaceAll(url, `http://127.0.0.1:${port}`)}
<script>
  posthog.register({ visitor: '${state}' })
  posthog.capture('early', { of: 'the head' })
</script>
</head><body><h1>Shop</h1></body></html>`
  const website = createServer((request, response) => {
    const known = request.url === '/'
    response.writeHead(known ? 200 : 204, { 'content-type': 'text/html; charset=utf-8' }).end(known ? shop : '')
  })
  await new Promise((listening) => website.listen(0, '127.0.0.1', listening))
  const context = await browser.newContext({ userAgent: PERSON })
  const page = await context.newPage()
  page.setDefaultTimeout(DEADLINE_MILLIS)
  page.on('pageerror', (error) => say('complaint', { text: `${state}: ${error.stack}` }))

  const began = performance.now()
  await page.goto(`http://127.0.0.1:${website.address().port}/`, { waitUntil: 'load' })
  const millis = Math.round(performance.now() - began)
  await page.locator('h1:has-text("Shop")').waitFor({ state: 'visible' })
  const queued = await page.evaluate(() => {
    posthog.capture('later', { of: 'the body' })
    posthog.onFeatureFlags(() => {})
    return Object.keys(posthog).filter((name) => typeof posthog[name] === 'function')
  })
  say('visit', { state, millis, callable: ['capture', 'identify'].filter((name) => queued.includes(name)) })

  await recover()
  await page.waitForFunction(() => posthog.__loaded, undefined, { polling: 50 })
  const methods = await page.evaluate(() => {
    const prototype = Object.getPrototypeOf(posthog)
    return Object.getOwnPropertyNames(prototype).filter(
      (name) =>
        !name.startsWith('_') && typeof Object.getOwnPropertyDescriptor(prototype, name).value === 'function'
    )
  })
  // Names of one or two letters are what the minifier makes of private ones.
  const isPublic = (name) => name.length > 2 || name === 'on'
  const wanted = methods.filter((name) => isPublic(name) && !NOT_QUEUED.includes(name))
  if (!wanted.includes('capture')) throw new Error(`what the SDK has is not seen: ${methods}`)
  for (const name of wanted) {
    if (!queued.includes(name)) say('missing', { name })
  }
  let events = []
  for (const deadline = Date.now() + DEADLINE_MILLIS; Date.now() < deadline; await sleep(200)) {
    events = await stored(state)
    if (events.includes('early') && events.includes('later')) break
  }
  say('arrived', { state, events: events.filter((name) => !name.startsWith('$')) })
  await context.close()
  website.close()
}
await browser.close()
process.exit(0)
