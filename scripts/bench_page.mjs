// Measures the pages of a server: time to the first byte and size as sent (median of TIMES requests on a kept connection),
// and first paint in Chromium (median of PAINTS loads). Prints a line for each page, and fails beyond the budgets.
//
//     bench_page.mjs NODE_MODULES URL PERSONAL_KEY

import http from 'node:http'
import { createRequire } from 'node:module'

const [modules, url, key] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')

const FIRST_BYTE_MILLIS = 20
const PAGE_BYTES = 60_000
const PAINT_MILLIS = 200
const TIMES = 21
const PAINTS = 7

const PAGES = [
  'home',
  'activity/live',
  'activity/explore',
  'insights/trends?a=%24pageview&from=-30d',
  'insights/trends?a=%24pageview&by1.key=%24browser&from=-30d',
  'insights/funnel?a=%24pageview&b=%24autocapture',
  'insights/retention?a=%24pageview',
  'insights/paths',
  'insights/lifecycle?a=%24pageview&from=-30d',
  'dashboard',
  'persons',
  'cohorts',
  'feature_flags',
  'data-management/events',
  'sql?q=SELECT+event%2C+count(*)+FROM+events+GROUP+BY+event',
  'health',
  'settings',
]

const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)]
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
const headers = { authorization: `Bearer ${key}`, 'accept-encoding': 'gzip' }
const ask = (address) =>
  new Promise((resolve, reject) => {
    const begun = performance.now()
    http.get(address, { agent, headers }, (answer) => {
      let first = 0
      let bytes = 0
      answer.on('data', (piece) => {
        first ||= performance.now() - begun
        bytes += piece.length
      })
      answer.on('end', () => resolve({ first, bytes, whole: performance.now() - begun, answer }))
    }).on('error', reject)
  })

// In the page: when it was painted first, which may be after it is loaded.
const firstPaint = () =>
  new Promise((resolve) => {
    setTimeout(() => resolve(Infinity), 5000)
    const told = (list) => list.getEntriesByName('first-contentful-paint').forEach((own) => resolve(own.startTime))
    new PerformanceObserver(told).observe({ type: 'paint', buffered: true })
  })

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
})
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage()
await page.goto(`${url}/login`)
await page.fill('input[name=key]', key)
await page.click('button:has-text("Sign in")')
await page.waitForURL(/\/home$/)

let isBeyond = false
console.log('page                                                         first byte   whole     sent  first paint')
for (const path of PAGES) {
  let address = `${url}/project/1/${path}`
  const { answer } = await ask(address)
  if (answer.statusCode === 303) address = url + answer.headers.location
  const asked = []
  for (let at = 0; at < TIMES; at += 1) asked.push(await ask(address))
  const paints = []
  for (let at = 0; at < PAINTS; at += 1) {
    await page.goto(address, { waitUntil: 'load' })
    paints.push(await page.evaluate(firstPaint))
  }
  const [first, whole, bytes, paint] = [median(asked.map((own) => own.first)), median(asked.map((own) => own.whole)), asked[0].bytes, median(paints)]
  const beyond = first > FIRST_BYTE_MILLIS || bytes > PAGE_BYTES || paint > PAINT_MILLIS
  isBeyond ||= beyond
  console.log(`${path.slice(0, 60).padEnd(60)} ${first.toFixed(1).padStart(7)} ms ${whole.toFixed(0).padStart(6)} ms ${(bytes / 1000).toFixed(1).padStart(6)} kB ${paint.toFixed(0).padStart(7)} ms${beyond ? '  beyond' : ''}`)
}
await browser.close()
agent.destroy()
if (isBeyond) process.exitCode = 1
