// Drives `posthog-node` against a server; the twin of python.py, which says what is printed.
//
//     node.mjs NODE_MODULES URL PROJECT_KEY WHO plain|gzip|v1-plain|v1-gzip|form
//
// Version 4 compresses nothing but forms (lz64), version 5 knows no forms. Version 5 speaks capture v1 if the
// environment says so (POSTHOG_CAPTURE_MODE=v1).

import { createRequire } from 'node:module'

import * as driver from './driver.mjs'

const [modules, url, key, who, coding] = process.argv.slice(2)
const require = createRequire(`${modules}/`)
const { PostHog } = require('posthog-node')

const EVENTS = 150
const USERS = 10

const { say } = driver
const eventId = (name) => driver.eventId(who, name)

// What is said of calls that are still the ones that users make; and of code that no build has marked.
const EXPECTED = ['is deprecated and will be removed', 'No chunk id map found']
const complaints = []
console.error = (...words) => {
  const text = words.map(String).join(' ')
  if (!EXPECTED.some((expected) => text.includes(expected))) complaints.push(text)
}
console.warn = console.error

const client = (options) => {
  const ph = new PostHog(key, {
    host: url,
    flushAt: 20,
    flushInterval: 100,
    fetchRetryCount: 0,
    // Unset where the SDK's own default is meant.
    ...(coding === 'form' ? { captureMode: 'form' } : {}),
    ...(coding.endsWith('plain') ? { disableCompression: true } : {}),
    ...options,
  })
  ph.on('error', (error) => complaints.push(`error event: ${error}`))
  return ph
}

const ph = client({})
const version = ph.getLibraryVersion()
const major = Number(version.split('.')[0])
say('lib', { name: 'posthog-node', version })

// Captures an event with an id of ours, and says so.
const capture = (id, event, distinctId, properties, more = {}, sent = ph) => {
  const given = { uuid: eventId(id), event }
  sent.capture({ distinctId, properties, ...given, ...more })
  const said = {}
  if (more.timestamp) said.timestamp = more.timestamp.toISOString()
  if (more.groups) {
    said.group_0 = more.groups.company
    properties = { ...properties, $groups: more.groups }
  }
  say('event', { distinct_id: distinctId, properties, ...given, ...said })
}

const values = {
  ...driver.values,
  $current_url: 'https://shop.example/cart?x=1#y',
  $screen_width: 1440,
}
const moment = Date.UTC(2026, 1, 3, 4, 5, 6, 789)

for (let number = 0; number < EVENTS; number++) {
  const properties = { number, who, ...(number % 3 ? { pad: 'x'.repeat(number * 50) } : values) }
  const more = {}
  if (number % 2 === 0) more.timestamp = new Date(moment - number * 86_400_000)
  if (number % 5 === 0) more.groups = { company: `${who}-acme` }
  capture(number, 'ordinary', `${who}-user-${number % USERS}`, properties, more)
}
const user = `${who}-user-0`

// Values that are no JSON, and what the SDK makes of them.
{
  const given = { uuid: eventId('dates'), event: 'dates' }
  ph.capture({ distinctId: user, properties: { at: new Date(moment), none: NaN }, ...given })
  const properties = { at: new Date(moment).toISOString(), none: null }
  say('event', { distinct_id: user, properties, ...given })
}

// Properties that capture v1 carries outside of the properties.
capture('session', 'in a session', user, { $session_id: eventId('a session'), $window_id: eventId('a window') })
capture('nobody', 'without a person', `${who}-nobody`, { $process_person_profile: false, step: 0 })
say('nobody', { distinct_id: `${who}-nobody` })

// Without a distinct id, a new one and no person.
if (major >= 5) {
  const given = { uuid: eventId('anybody'), event: 'of anybody' }
  ph.capture({ properties: { step: 0 }, ...given })
  say('event', { properties: { step: 0, $process_person_profile: false }, ...given })
}

// `identify` joins the person with the one who came without a name; in version 4 only `alias` does.
const person = `${who}-member`
const anonymous = `${who}-anonymous`
capture('before', 'before identify', anonymous, { step: 1, $set: { plan: 'free', seen: true } })
// The SDK puts some calls into its queue later than others, and persons are changed in the order of the queue.
await ph.flush()
{
  const $set = { email: `${who}@shop.example`, age: 41, address: { city: 'Bern' }, plan: 'pro' }
  const $set_once = { first: 1, age: 7 }
  const $anon_distinct_id = anonymous
  ph.identify({
    distinctId: person,
    properties: { $set: { ...$set }, $set_once: { ...$set_once }, ...(major >= 5 ? { $anon_distinct_id } : {}) },
  })
  const properties = { $set, $set_once, ...(major >= 5 ? { $anon_distinct_id } : {}) }
  say('event', { event: '$identify', distinct_id: person, properties })
}
await ph.flush()
capture('set', '$set', person, { $set: { age: 42 }, $set_once: { first: 2 }, $unset: ['seen'] })
await ph.flush()
for (const alias of [`${who}-alias`, ...(major >= 5 ? [] : [anonymous])]) {
  ph.alias({ distinctId: person, alias })
  const properties = { distinct_id: person, alias }
  say('event', { event: '$create_alias', distinct_id: person, properties })
}
if (major >= 5) {
  ph.setPersonProperties({ distinctId: person, properties: { nickname: 'ada' }, propertiesOnce: { nickname: 'eve' } })
  const properties = { $set: { nickname: 'ada' }, $set_once: { nickname: 'eve' } }
  say('event', { event: '$set', distinct_id: person, properties })
  await ph.flush()
  ph.unsetPersonProperties({ distinctId: person, properties: ['nickname'] })
  say('event', { event: '$set', distinct_id: person, properties: { $unset: ['nickname'] } })
}
say('person', {
  distinct_ids: [anonymous, person, `${who}-alias`],
  properties: {
    first: 1,
    plan: 'pro',
    email: `${who}@shop.example`,
    age: 42,
    address: { city: 'Bern' },
    // Version 4 joins the two only after that one was removed from the other.
    ...(major >= 5 ? {} : { seen: true }),
  },
  absent: major >= 5 ? ['seen', 'nickname'] : [],
})

const company = { company: `${who}-acme` }
{
  const properties = { name: 'Acme', size: 7, tags: ['a', 'b'] }
  const given = { $group_type: 'company', $group_key: company.company, $group_set: properties }
  ph.groupIdentify({ groupType: 'company', groupKey: company.company, properties, distinctId: person })
  say('event', { event: '$groupidentify', distinct_id: person, properties: given })
  say('group', { group_type: 'company', key: company.company, properties })
}

{
  ph.captureException(new Error('no such cart'), user, { step: 'failing' })
  say('event', { event: '$exception', distinct_id: user, properties: { step: 'failing' } })
}

// An address of their own for events about language models.
if (major >= 5) {
  const given = { uuid: eventId('ai'), event: '$ai_generation' }
  const properties = { $ai_model: 'none', $ai_input: [{ role: 'user', content: 'hello' }], $ai_input_tokens: 1 }
  ph.captureAi({ distinctId: user, properties, ...given })
  say('event', { distinct_id: user, properties, ...given })
}

// The server knows the e-mail address and the group only from the events above.
await ph.flush()
for (const [flag, distinctId, groups] of [
  ['everyone', person],
  ['nobody', person],
  ['colour', person],
  ['by-email', person],
  ['by-email', user],
  ['by-group', person, company],
]) {
  const value = await ph.getFeatureFlag(flag, distinctId, groups && { groups })
  say('flag', { key: flag, distinct_id: distinctId, value })
  const properties = { $feature_flag: flag, $feature_flag_response: value, ...(groups ? { $groups: groups } : {}) }
  const said = groups ? { group_0: groups.company } : {}
  say('event', { event: '$feature_flag_called', distinct_id: distinctId, properties, ...said })
  if ((await ph.isFeatureEnabled(flag, distinctId, groups && { groups })) !== Boolean(value)) {
    complaints.push(`isFeatureEnabled of ${flag}`)
  }
}
say('payload', { value: await ph.getFeatureFlagPayload('colour', person) })
say('flags', { distinct_id: person, values: await ph.getAllFlags(person, { groups: company }) })

// The SDK asks for the flags of the person and writes them into the event.
{
  const flags = { everyone: true, nobody: false, colour: 'blue', 'by-email': true, 'by-group': true }
  const active = Object.keys(flags).filter((flag) => flags[flag])
  const given = { uuid: eventId('flags'), event: 'with flags' }
  ph.capture({ distinctId: person, properties: { step: 2 }, groups: company, sendFeatureFlags: true, ...given })
  const properties = { step: 2, $groups: company }
  for (const [flag, value] of Object.entries(flags)) properties[`$feature/${flag}`] = value
  const unordered = { $active_feature_flags: active.sort() }
  say('event', { distinct_id: person, properties, unordered, group_0: company.company, ...given })
}

// A call that waits for the answer.
{
  const given = { uuid: eventId('immediate'), event: 'immediate' }
  await ph.captureImmediate({ distinctId: user, properties: { step: 3 }, ...given })
  say('event', { distinct_id: user, properties: { step: 3 }, ...given })
}
await ph.shutdown()

// A client that marks what it sends as old.
const old = client({ historicalMigration: true })
for (let number = 0; number < 3; number++) {
  const timestamp = new Date(Date.UTC(2020, 8, 13, 12, 26, 40 + number))
  capture(`historical ${number}`, 'historical', user, { number }, { timestamp }, old)
}
await old.shutdown()

if (complaints.length) {
  process.stderr.write(`the SDK complains:\n${complaints.join('\n')}\n`)
  process.exit(1)
}
