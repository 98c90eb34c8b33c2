// Drives `posthog-js` in Chromium against a server. Says what python.py says, and:
//
//     event    as given to the SDK; the browser's own events (pages, clicks) are not
//     sent     every event as the SDK is about to send it: nothing but the server can change it now
//     request  each kind of request to the server that was made: method, path, status
//     beacons  the number of requests that were left to the browser, as a page that closes does
//
//     browser.mjs NODE_MODULES URL PROJECT_KEY PERSONAL_KEY WHO VARIANT
//
// The page comes from a server of its own, so that each request to URL is one to another origin. VARIANT:
//
//     module   the SDK as bundlers take it from the npm package
//     plain    the same without compression, and with a person for everybody
//     snippet  the snippet of the documentation, which loads the SDK from URL
//     array    the script of URL that is the SDK and the project's settings in one

import { createServer } from 'node:http'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

import { eventId, say, values } from './driver.mjs'

const [modules, url, key, personalKey, who, variant] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')
const version = JSON.parse(readFileSync(join(modules, 'posthog-js/package.json'))).version

const complaints = []
const DEADLINE_MILLIS = 60_000

// ---- the server of the pages

// As the documentation of the SDK prints it, for a host of one's own.
const SNIPPET = `!function(t,e){var o,n,p,r;e.__SV||(window.posthog=e,e._i=[],e.init=function(i,s,a){function g(t,e){var o=e.split(".");2==o.length&&(t=t[o[0]],e=o[1]),t[e]=function(){t.push([e].concat(Array.prototype.slice.call(arguments,0)))}}(p=t.createElement("script")).type="text/javascript",p.crossOrigin="anonymous",p.async=!0,p.src=s.api_host.replace(".i.posthog.com","-assets.i.posthog.com")+"/static/array.js",(r=t.getElementsByTagName("script")[0]).parentNode.insertBefore(p,r);var u=e;for(void 0!==a?u=e[a]=[]:a="posthog",u.people=u.people||[],u.toString=function(t){var e="posthog";return"posthog"!==a&&(e+="."+a),t||(e+=" (stub)"),e},u.people.toString=function(){return u.toString(1)+".people (stub)"},o="init capture register register_once register_for_session unregister unregister_for_session getFeatureFlag getFeatureFlagPayload isFeatureEnabled reloadFeatureFlags identify setPersonProperties group resetGroups setPersonPropertiesForFlags setGroupPropertiesForFlags reset get_distinct_id getGroups get_session_id alias set_config opt_in_capturing opt_out_capturing onFeatureFlags onSessionId captureException".split(" "),n=0;n<o.length;n++)g(u,o[n]);e._i.push([i,s,a])},e.__SV=1)}(document,window.posthog||[]);`

const options = {
  api_host: url,
  // A headless browser looks like a bot.
  opt_out_useragent_filter: true,
  request_queue_config: { flush_interval_ms: 1000 },
  ...(variant === 'plain' ? { disable_compression: true, person_profiles: 'always' } : {}),
}
const starts = {
  module: `<script type="module">import posthog from '/module.js'; start(posthog)</script>`,
  plain: `<script type="module">import posthog from '/module.js'; start(posthog)</script>`,
  snippet: `<script>${SNIPPET} start(posthog)</script>`,
  array: `<script src="${url}/array/${key}/array.js" crossorigin="anonymous"></script><script>start(posthog)</script>`,
}
const pages = {
  '/settings.js': ['text/javascript', `window.settings = ${JSON.stringify({ key, options })}`],
  '/module.js': ['text/javascript', readFileSync(join(modules, 'posthog-js/dist/module.js'))],
  '/blank': ['text/html', '<!doctype html><title>Blank</title>'],
  '/favicon.ico': ['image/x-icon', ''],
}
const shop = readFileSync(new URL('shop.html', import.meta.url), 'utf8').replace('<!-- START -->', starts[variant])
const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://shop')
  const [type, body] = pages[pathname] ?? ['text/html; charset=utf-8', shop]
  response.writeHead(200, { 'content-type': type }).end(body)
})
await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
const origin = `http://127.0.0.1:${server.address().port}`

// ---- flags are managed while the page is open

const manage = async (method, path, body) => {
  const answer = await fetch(`${url}/api/projects/1/${path}`, {
    method,
    headers: { authorization: `Bearer ${personalKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
  return answer.json()
}
const groups = [{ properties: [], rollout_percentage: 100 }]
const switched = await manage('POST', 'feature_flags/', {
  key: `switch-${who}`,
  active: true,
  filters: { groups, payloads: { true: '{"on": 1}' } },
})

const reloaded = await manage('POST', 'feature_flags/', {
  key: `reloaded-${who}`,
  filters: { groups: [{ properties: [], rollout_percentage: 0 }] },
})

// ---- the browser, with a profile of its own in a temporary directory

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
  ],
})
const context = await browser.newContext()
const page = await context.newPage()
page.setDefaultTimeout(DEADLINE_MILLIS)

page.on('pageerror', (error) => complaints.push(`error in the page: ${error.stack}`))
page.on('console', (message) => {
  if (['error', 'warning'].includes(message.type())) {
    complaints.push(`console: ${message.text()} ${message.location().url ?? ''}`)
  }
})
const requests = new Set()
const ours = (request) => request.url().startsWith(`${url}/`)
const pathOf = (request) => new URL(request.url()).pathname.replace(key, '<token>')
context.on('response', (response) => {
  if (!ours(response.request())) return
  const [method, path] = [response.request().method(), pathOf(response.request())]
  requests.add(JSON.stringify({ method, path, status: response.status() }))
})
let beacons = 0
context.on('request', (request) => {
  if (ours(request) && request.resourceType() === 'ping') beacons += 1
})
context.on('requestfailed', (request) => {
  if (!ours(request)) return
  // The browser tells nobody what becomes of a beacon, or of a request of a page that is gone. That the events
  // arrive is checked where they are stored.
  const { errorText } = request.failure() ?? {}
  if (request.resourceType() === 'ping' || errorText === 'net::ERR_ABORTED') return
  complaints.push(`${request.method()} ${pathOf(request)}: ${errorText}`)
})

// ---- in the page

const until = (condition, argument) => page.waitForFunction(condition, argument, { polling: 20 })
// The SDK is there, and has captured the view of the page, which it does a moment later.
const started = () => until(() => window.ready && window.viewed)
const distinctId = () => page.evaluate(() => posthog.get_distinct_id())

// Waits until every event so far is stored: requests of a browser overtake one another, while persons are changed in the
// order of arrival.
const settled = async () => {
  const deadline = Date.now() + DEADLINE_MILLIS
  for (;;) {
    const sent = await page.evaluate(() => JSON.parse(localStorage.getItem('sent')))
    const query = `SELECT array_agg(uuid) AS uuids FROM events WHERE uuid IN (${sent.map(({ uuid }) => `'${uuid}'`).join()})`
    const stored = (await manage('POST', 'query/', { query })).uuids ?? []
    const missing = sent.filter(({ uuid }) => !stored.includes(uuid))
    if (missing.length === 0 && stored.length === sent.length) return
    if (Date.now() > deadline) throw new Error(`${stored.length} are stored; missing: ${JSON.stringify(missing)}`)
    await new Promise((passed) => setTimeout(passed, 50))
  }
}

// Captures an event, and says what the SDK was told. `leave` is a page to leave for at once, or 'reload'. An event with
// options, such as an id of ours, is sent at once; others wait for more, or for the end of the page.
const capture = async (event, properties, { options, said, leave } = {}) => {
  const left = leave && page.waitForEvent('load')
  const told = { event, distinct_id: await distinctId(), properties, ...said }
  told.uuid = await page.evaluate(
    ([event, properties, options, leave]) => {
      // The SDK loses what it is just compressing when a page closes, and on a busy machine a page takes longer to
      // close than the SDK waits for more events. So its timers end here, and the end of the page alone sends.
      const later = window.setTimeout
      if (leave) {
        for (let timer = later(() => {}); timer > 0; timer--) clearTimeout(timer)
        window.setTimeout = () => 0
      }
      const { uuid } = posthog.capture(event, properties, options)
      if (leave === 'reload') later(() => location.reload())
      else if (leave) later(() => (location.href = leave))
      return uuid
    },
    [event, properties, options, leave],
  )
  if (options?.uuid && told.uuid !== options.uuid) complaints.push(`the SDK changes the id of ${event}`)
  say('event', told)
  await left
}

// Clicks until the SDK notices: it listens once it has the settings of the project, which may come after the flags.
const click = async (selector) => {
  const noticed = () => JSON.parse(localStorage.getItem('sent')).some(({ event }) => event === '$autocapture')
  const deadline = Date.now() + DEADLINE_MILLIS
  do {
    await page.click(selector)
    if (await page.evaluate(noticed)) return
    await new Promise((passed) => setTimeout(passed, 200))
  } while (Date.now() < deadline)
  complaints.push(`no click on ${selector} was noticed`)
}

// Asks for a flag once the page knows that it is `expected`; there may be an older answer on its way.
const flag = async (name, expected) => {
  const isExpected = ([name, expected]) => (posthog.getFeatureFlag(name, { send_event: false }) ?? null) === expected
  await until(isExpected, [name, expected]).catch(() => complaints.push(`${name} never became ${expected}`))
  const [value, payload] = await page.evaluate(
    (name) => [posthog.getFeatureFlag(name) ?? null, posthog.getFeatureFlagPayload(name) ?? null],
    name,
  )
  say('flag', { key: name.replace(who, '<who>'), distinct_id: await distinctId(), value, payload })
}

const drive = async () => {
  // A first visit, from a campaign: nobody is known.
  await page.goto(`${origin}/shop?utm_source=news&utm_campaign=%C3%A9t%C3%A9&gclid=g1#top`)
  await started()
  await until(() => window.flags > 0)
  const anonymous = await distinctId()
  await flag('everyone', true)
  await flag('nobody', false)
  await flag('colour', 'blue')
  await flag('by-email', false)
  await flag(`switch-${who}`, true)
  await flag(`reloaded-${who}`, false)
  await capture('values', values)
  await capture('pad', { pad: 'é'.repeat(20_000) }, { options: { uuid: eventId(who, 'pad') } })
  const person = { $set: { plan: 'free' }, $set_once: { first: 1 } }
  await capture('with person properties', { step: 1 }, { options: person })
  await click('#buy')
  await settled()
  const visitor = `${who}-member`

  // Identified: the flags are those of the person, whom the server now knows.
  await page.evaluate(() => posthog.register({ team: 'blue' }))
  await page.evaluate(
    ([visitor, email]) => posthog.identify(visitor, { email, age: 41, plan: 'pro' }, { first: 2, second: 2 }),
    [visitor, `${who}@shop.example`],
  )
  await flag('by-email', true)
  await settled()
  await page.evaluate(() => posthog.setPersonProperties({ age: 42, seen: true }, { first: 3 }))
  await settled()
  await page.evaluate(() => posthog.unsetPersonProperties(['seen']))
  await page.evaluate((who) => void posthog.alias(`${who}-alias`), who)
  const company = { name: 'Acme', size: 7, tags: ['a', 'b'] }
  await page.evaluate(([who, company]) => posthog.group('company', `${who}-acme`, company), [who, company])
  await flag('by-group', true)
  const grouped = { group_0: `${who}-acme` }
  await capture('with a group', { step: 2 }, { said: grouped })
  await page.evaluate(() => posthog.captureException(new Error('no such cart'), { step: 'failing' }))
  const timestamp = new Date(Date.UTC(2026, 1, 3, 4, 5, 6, 789))
  const said = { ...grouped, timestamp: timestamp.toISOString() }
  await capture('earlier', { step: 3 }, { options: { timestamp }, said })

  // A flag changes while the page is open.
  await manage('PATCH', `feature_flags/${switched.id}/`, { active: false })
  await page.evaluate(() => posthog.reloadFeatureFlags())
  await flag(`switch-${who}`, null)
  await manage('PATCH', `feature_flags/${switched.id}/`, { active: true })
  await page.evaluate(() => posthog.reloadFeatureFlags())
  await flag(`switch-${who}`, true)

  // Lists that this server has nothing for.
  const lists = await page.evaluate(() =>
    Promise.all([
      new Promise((loaded) => posthog.getSurveys((surveys, context) => loaded(context?.error ?? surveys), true)),
      new Promise((loaded) => posthog.getEarlyAccessFeatures(loaded, true)),
    ]),
  )
  if (JSON.stringify(lists) !== '[[],[]]') complaints.push(`lists: ${JSON.stringify(lists)}`)

  // The page is left with events that are not sent yet, and loaded again: the visitor is the same one.
  await settled()
  await capture('last words', { step: 4 }, { said: grouped, leave: '/next?page=2' })
  await started()
  await until(() => window.flags > 0)
  await settled()
  await manage('PATCH', `feature_flags/${reloaded.id}/`, { filters: { groups } })
  await capture('next page', { step: 5 }, { said: grouped, leave: 'reload' })
  await started()
  await until(() => window.flags > 0)
  await flag('by-email', true)
  await flag(`reloaded-${who}`, true)
  const options = { transport: 'sendBeacon', send_instantly: true }
  await capture('by beacon', { step: 6 }, { options, said: grouped })

  // Nothing of a visitor who does not want it, then somebody new.
  await page.evaluate(() => posthog.opt_out_capturing())
  await page.evaluate(() => void posthog.capture('unwanted', { step: 7 }))
  await page.evaluate(() => posthog.opt_in_capturing({ captureEventName: false }))
  await page.evaluate(() => posthog.reset())
  const other = await distinctId()
  if (other === anonymous || other === visitor) complaints.push('reset keeps the distinct id')
  await capture('of somebody else', { step: 8 })
  await flag('by-email', false)

  // What is left is sent when the page closes.
  await settled()
  await capture('closing', { step: 9 }, { leave: '/blank' })
  await settled()
  const sent = await page.evaluate(() => JSON.parse(localStorage.getItem('sent')))
  for (const { $set, $set_once, $unset, ...event } of sent) {
    const top = Object.entries({ $set, $set_once, $unset }).filter(([, value]) => value !== undefined)
    say('sent', { ...event, top: Object.fromEntries(top) })
  }

  say('lib', { name: 'web', version })
  say('person', {
    distinct_ids: [anonymous, visitor, `${who}-alias`],
    properties: {
      email: `${who}@shop.example`,
      age: 42,
      plan: 'pro',
      second: 2,
      // The anonymous visitor was a person only if everybody is one.
      first: variant === 'plain' ? 1 : 2,
      utm_source: 'news',
      $initial_utm_source: 'news',
      $initial_utm_campaign: 'été',
      $initial_gclid: 'g1',
    },
    absent: ['seen'],
  })
  if (variant === 'plain') say('person', { distinct_ids: [other], properties: {} })
  else say('nobody', { distinct_id: other })
  say('group', { group_type: 'company', key: `${who}-acme`, properties: company })
  for (const request of requests) say('request', JSON.parse(request))
  say('beacons', { count: beacons })
}

try {
  await drive()
} catch (error) {
  complaints.push(`${error.stack}\nrequests: ${[...requests].join(' ')}`)
}
await browser.close()
server.close()
if (complaints.length) {
  process.stderr.write(`${complaints.join('\n')}\n`)
  process.exit(1)
}
