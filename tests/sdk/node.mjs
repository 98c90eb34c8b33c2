// Drives posthog-node against a server; the twin of python.py, which says what is printed.
//
//     node.mjs NODE_MODULES URL PROJECT_KEY WHO gzip|plain

import { createRequire } from 'node:module'
import { createHash } from 'node:crypto'

const [modules, url, key, who, coding] = process.argv.slice(2)
const { PostHog } = createRequire(`${modules}/`)('posthog-node')

const EVENTS = 150
const USERS = 10

const say = (kind, what) => process.stdout.write(JSON.stringify({ kind, ...what }) + '\n')

const complaints = []
console.error = (...words) => {
  const text = words.map(String).join(' ')
  // Of calls that are still the ones that users make.
  if (!text.includes('is deprecated and will be removed')) complaints.push(text)
}
console.warn = console.error

// A version 7 uuid, as the SDK makes them, that depends on nothing but its arguments.
const eventId = (name) => {
  const hex = createHash('sha256').update(`${who}/${name}`).digest('hex')
  return `0192f0c1-7f3a-7${hex.slice(0, 3)}-8${hex.slice(3, 6)}-${hex.slice(6, 18)}`
}

const ph = new PostHog(key, {
  host: url,
  flushAt: 20,
  flushInterval: 100,
  disableCompression: coding === 'plain',
  fetchRetryCount: 0,
})
ph.on('error', (error) => complaints.push(`error event: ${error}`))

const values = {
  text: 'naïve "quoted" \\ \u2028 😀',
  cut: 'half a pair: \ud83d',
  empty: '',
  integer: -42,
  large: 2 ** 53,
  float: 0.1,
  exponent: 1e-7,
  huge: 1e21,
  true: true,
  false: false,
  nothing: null,
  list: [1, 'two', [3.5, null], {}],
  object: { a: { b: { c: [true] } }, '': 0 },
  $current_url: 'https://shop.example/cart?x=1#y',
  $screen_width: 1440,
}
const moment = Date.UTC(2026, 1, 3, 4, 5, 6, 789)

for (let number = 0; number < EVENTS; number++) {
  const distinctId = `${who}-user-${number % USERS}`
  const properties = { number, who, ...(number % 3 ? { pad: 'x'.repeat(number * 50) } : values) }
  const given = { uuid: eventId(number), event: 'ordinary' }
  const more = {}
  const said = {}
  if (number % 2 === 0) {
    more.timestamp = new Date(moment + number * 86_400_000)
    said.timestamp = more.timestamp.toISOString()
  }
  if (number % 5 === 0) {
    more.groups = { company: `${who}-acme` }
    said.group_0 = `${who}-acme`
  }
  ph.capture({ distinctId, properties, ...given, ...more })
  if (properties.cut) properties.cut = 'half a pair: \ufffd'
  say('event', { distinct_id: distinctId, properties, ...given, ...said })
}

// Values that are no JSON, and what the SDK makes of them.
{
  const given = { uuid: eventId('dates'), event: 'dates' }
  ph.capture({ distinctId: `${who}-user-0`, properties: { at: new Date(moment), none: NaN }, ...given })
  const properties = { at: new Date(moment).toISOString(), none: null }
  say('event', { distinct_id: `${who}-user-0`, properties, ...given })
}

// `identify` joins the person with the one who came without a name.
const person = `${who}-member`
const anonymous = `${who}-anonymous`
{
  const given = { uuid: eventId('before'), event: 'before identify' }
  ph.capture({ distinctId: anonymous, properties: { step: 1, $set: { plan: 'free', seen: true } }, ...given })
  say('event', { distinct_id: anonymous, properties: { step: 1 }, ...given })
}
ph.identify({
  distinctId: person,
  properties: {
    $set: { email: `${who}@shop.example`, age: 41, address: { city: 'Bern' }, plan: 'pro' },
    $set_once: { first: 1, age: 7 },
    $anon_distinct_id: anonymous,
  },
})
say('event', { event: '$identify', distinct_id: person, properties: { $anon_distinct_id: anonymous } })
{
  const given = { uuid: eventId('set'), event: '$set' }
  const properties = { $set: { age: 42 }, $set_once: { first: 2 }, $unset: ['seen'] }
  ph.capture({ distinctId: person, properties, ...given })
  say('event', { distinct_id: person, properties, ...given })
}
ph.alias({ distinctId: person, alias: `${who}-alias` })
say('event', { event: '$create_alias', distinct_id: person, properties: { alias: `${who}-alias` } })
say('person', {
  distinct_ids: [anonymous, person, `${who}-alias`],
  properties: {
    first: 1,
    plan: 'pro',
    email: `${who}@shop.example`,
    age: 42,
    address: { city: 'Bern' },
  },
  absent: ['seen'],
})

{
  const properties = { name: 'Acme', size: 7, tags: ['a', 'b'] }
  ph.groupIdentify({ groupType: 'company', groupKey: `${who}-acme`, properties, distinctId: person })
  const given = { $group_type: 'company', $group_key: `${who}-acme`, $group_set: properties }
  say('event', { event: '$groupidentify', distinct_id: person, properties: given })
  say('group', { group_type: 'company', key: `${who}-acme`, properties })
}

// The server knows the e-mail address only from the events above.
await ph.flush()
for (const [flag, distinctId] of [
  ['everyone', person],
  ['nobody', person],
  ['colour', person],
  ['by-email', person],
  ['by-email', `${who}-user-0`],
]) {
  const value = await ph.getFeatureFlag(flag, distinctId)
  say('flag', { key: flag, distinct_id: distinctId, value })
  const properties = { $feature_flag: flag, $feature_flag_response: value }
  say('event', { event: '$feature_flag_called', distinct_id: distinctId, properties })
}
say('payload', { value: await ph.getFeatureFlagPayload('colour', person) })

await ph.shutdown()
if (complaints.length) {
  process.stderr.write(`the SDK complains:\n${complaints.join('\n')}\n`)
  process.exit(1)
}
