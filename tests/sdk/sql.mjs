// Writes SQL in the box of the page in Chromium, with completion and by keyboard. Prints a line of JSON for each thing:
//
//     step       what worked: what
//     complaint  a message of the console or an error: text
//
//     sql.mjs NODE_MODULES URL PERSONAL_KEY

import { createRequire } from 'node:module'

import { say } from './driver.mjs'

const [modules, url, personalKey] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
})
const page = await (await browser.newContext()).newPage()
page.setDefaultTimeout(60_000)
page.on('pageerror', (error) => say('complaint', { text: `error: ${error.stack}` }))
page.on('console', (message) => {
  if (['error', 'warning'].includes(message.type())) say('complaint', { text: message.text() })
})
const is = (what, found, expected) => {
  if (JSON.stringify(found) === JSON.stringify(expected)) say('step', { what })
  else say('complaint', { text: `${what}: ${JSON.stringify(found)}` })
}

await page.goto(`${url}/login?next=/project/1/sql`)
await page.fill('input[name=key]', personalKey)
await page.click('button:has-text("Sign in")')
const box = page.locator('#q')
const options = page.locator('.suggestions [role=option]')
const offered = async () => {
  await options.first().waitFor()
  return options.allTextContents()
}

// ---- a function, a column, a property of both forms, an event

await box.click()
await page.keyboard.type('SELECT date_tr')
is('functions', (await offered()).includes('date_trunc'), true)
await page.keyboard.press('Tab')
await page.keyboard.type("('day', timest")
is('columns', (await offered()).includes('timestamp'), true)
await page.keyboard.press('ArrowDown')
await page.keyboard.press('Enter')
await page.keyboard.type('), properties.pl')
await offered()
await page.keyboard.press('Tab')
await page.keyboard.type(', person.properties.od')
is('properties', (await offered()).includes("odd 'name'"), true)
await page.keyboard.press('Tab')
await page.keyboard.type(" FROM events WHERE event = 'it")
is('events', await offered(), ["it's <b>"])
await page.keyboard.press('Tab')
const whole =
  "SELECT date_trunc('day', timestamp), properties.plan, person.properties['odd ''name'''] " +
  "FROM events WHERE event = 'it''s <b>'"
is('text', await box.inputValue(), whole)

// ---- nothing is taken that was not chosen, and the page goes on without the list

await page.keyboard.type('\nLIM')
await page.keyboard.press('Escape')
await page.keyboard.press('Enter')
is('lines', (await box.inputValue()).split('\n').length, 3)
await box.fill(whole)
await page.keyboard.press('Control+Enter')
await page.waitForSelector('#result table')
is('rows', await page.locator('#result tbody tr').count(), 1)

// ---- it is remembered, with what was run since, and forgotten when asked

await page.goto(`${url}/project/1/sql?q=SELECT+1`)
await page.click('#sql-history summary')
is('history', await page.locator('#sql-history a').allTextContents(), ['SELECT 1', whole.slice(0, 120)])
await page.click('#sql-history a >> nth=1')
await page.waitForSelector('#result table')
is('again', await box.inputValue(), whole)
await page.click('#sql-history summary')
await page.click('text=Clear history')
await page.goto(`${url}/project/1/sql`)
is('forgotten', await page.locator('#sql-history').isHidden(), true)
await browser.close()
