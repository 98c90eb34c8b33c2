// Fills a new server with a shop's events of four weeks, and takes pictures of its pages in Chromium.
//
//     pictures.mjs NODE_MODULES URL PROJECT_KEY PERSONAL_KEY DIRECTORY [WIDTH THEME PATH]...
//
// Without further arguments it takes the pictures of the guide: dashboard.png and flag.png. Each PATH is within
// /project/1/; its picture is named after it, the width and the theme.

import { createRequire } from 'node:module'
import { join } from 'node:path'

const [modules, url, projectKey, personalKey, directory, ...wanted] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')

const DAYS = 28
const PERSONS = 240
const HOUR_MILLIS = 3_600_000

// The same numbers each time.
let state = 19
const random = () => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0
  return state / 2 ** 32
}
const pick = (list) => list[Math.floor(random() * list.length)]

const request = async (method, path, body) => {
  const answer = await fetch(url + path, {
    method,
    headers: { authorization: `Bearer ${personalKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
  return answer.json()
}
const make = (path, body) => request('POST', `/api/projects/1/${path}`, body)

// ---- what people did

const NAMES = ['Ada', 'Alan', 'Barbara', 'Edsger', 'Frances', 'Grace', 'John', 'Kathleen', 'Katherine', 'Niklaus', 'Radia', 'Tony']
const today = new Date().setUTCHours(0, 0, 0, 0)
const events = []
for (let at = 0; at < PERSONS; at += 1) {
  const id = `${pick(NAMES).toLowerCase()}-${at}`
  const plan = random() < 0.3 ? 'pro' : 'free'
  const browser = pick(['Chrome', 'Chrome', 'Chrome', 'Safari', 'Safari', 'Firefox', 'Edge'])
  const since = Math.floor(random() ** 0.7 * DAYS)
  const often = 0.15 + random() * 0.5
  for (let day = since; day < DAYS; day += 1) {
    const weekend = [0, 6].includes(new Date(today - (DAYS - day) * 24 * HOUR_MILLIS).getUTCDay())
    if (random() > often * (weekend ? 0.45 : 1) && day !== since) continue
    let time = today - (DAYS - day) * 24 * HOUR_MILLIS + (8 + random() * 13) * HOUR_MILLIS
    const did = (event, properties = {}) => {
      time += 20_000 + random() * 200_000
      if (time > Date.now()) return
      events.push({
        event,
        distinct_id: id,
        timestamp: new Date(time).toISOString(),
        properties: { $browser: browser, plan, $set: { plan, email: `${id}@example.com` }, ...properties },
      })
    }
    did('$pageview', { $current_url: 'https://shop.example/', $pathname: '/' })
    if (random() < 0.7) did('$pageview', { $current_url: 'https://shop.example/books', $pathname: '/books' })
    if (random() < 0.62) did('product viewed')
    else continue
    if (random() < (browser === 'Safari' ? 0.35 : 0.58)) did('added to cart')
    else continue
    if (random() < (plan === 'pro' ? 0.8 : 0.5)) did('order placed', { revenue: Math.round(10 + random() * 90) })
  }
}
for (let at = 0; at < events.length; at += 500) {
  const answer = await fetch(`${url}/batch/`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ api_key: projectKey, historical_migration: false, batch: events.slice(at, at + 500) }),
  })
  if (!answer.ok) throw new Error(`batch: ${answer.status}`)
}

// ---- what the shop asks

const series = (...names) => names.map((event) => ({ kind: 'EventsNode', event }))
const range = { date_from: '-27d' }
const board = await make('dashboards/', { name: 'Shop' })
const insight = (name, query) => make('insights/', { name, query, saved: true, dashboards: [board.id] })
// A dashboard has the newest first.
await insight('Who comes back', {
  kind: 'RetentionQuery',
  retentionFilter: {
    period: 'Week',
    totalIntervals: 4,
    targetEntity: { id: '$pageview', type: 'events' },
    returningEntity: { id: '$pageview', type: 'events' },
  },
})
await insight('Orders by week', {
  kind: 'TrendsQuery',
  series: series('order placed'),
  dateRange: range,
  interval: 'week',
  trendsFilter: { display: 'ActionsBar' },
  breakdownFilter: { breakdowns: [{ property: '$browser', type: 'event' }] },
})
await insight('From a look to an order', {
  kind: 'FunnelsQuery',
  series: series('product viewed', 'added to cart', 'order placed'),
  dateRange: range,
})
await insight('Visitors by day', {
  kind: 'TrendsQuery',
  series: [{ kind: 'EventsNode', event: '$pageview', math: 'dau', custom_name: 'Visitors' }],
  dateRange: range,
  breakdownFilter: { breakdowns: [{ property: 'plan', type: 'event' }] },
})
const variants = [
  { key: 'one-page', name: 'All on one page', rollout_percentage: 50 },
  { key: 'steps', name: 'Step by step', rollout_percentage: 50 },
]
const filter = { key: 'plan', type: 'person', operator: 'exact', value: ['pro'] }
await make('feature_flags/', {
  key: 'new-checkout',
  name: 'The new checkout',
  filters: {
    groups: [
      { properties: [filter], rollout_percentage: 100 },
      { properties: [], rollout_percentage: 20 },
    ],
    multivariate: { variants },
  },
})
const rule = { type: 'OR', values: [{ type: 'AND', values: [filter] }] }
await make('cohorts/', { name: 'Customers who pay', filters: { properties: rule } })

// ---- pictures

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
})
const context = await browser.newContext({ reducedMotion: 'reduce' })
const page = await context.newPage()
await page.goto(`${url}/login`)
await page.fill('input[name=key]', personalKey)
await page.click('button:has-text("Sign in")')
await page.waitForURL(/\/home$/)

const picture = async (path, name, [width, height], theme, fullPage = false) => {
  await page.setViewportSize({ width, height })
  await page.emulateMedia({ colorScheme: theme })
  await page.goto(`${url}/project/1/${path}`, { waitUntil: 'load' })
  await page.screenshot({ path: join(directory, `${name}.png`), fullPage })
}
if (wanted.length === 0) {
  await picture(`dashboard/${board.id}`, 'dashboard', [1280, 960], 'light')
  await picture(`feature_flags/1?distinct_id=${events[0].distinct_id}`, 'flag', [1280, 900], 'dark')
}
for (let at = 0; at < wanted.length; at += 3) {
  const [width, theme, path] = wanted.slice(at, at + 3)
  const name = `${path.replace(/[^a-z0-9]+/gi, '-')}-${width}-${theme}`
  await picture(path, name, [Number(width), 900], theme, true)
}
await browser.close()
