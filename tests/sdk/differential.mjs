// Compares the server's answers in CASES, which differential.py wrote, with what posthog-node makes of
// the same definitions. Prints one line of JSON, as differential.py does.
//
//     differential.mjs NODE_MODULES URL PROJECT_KEY PERSONAL_KEY CASES

import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const [modules, url, key, personalKey, cases] = process.argv.slice(2)
const { PostHog } = createRequire(`${modules}/`)('posthog-node')

const complaints = []
console.error = (...words) => {
  const text = words.map(String).join(' ')
  // It says which flags it leaves to the server; how many is counted below.
  if (!text.includes('You are using local evaluation but')) complaints.push(text)
}
console.warn = console.error

const ph = new PostHog(key, { host: url, personalApiKey: personalKey, featureFlagsPollingInterval: 600000 })
ph.on('error', (error) => complaints.push(`error event: ${error}`))
await ph.reloadFeatureFlags()

let compared = 0
let unresolved = 0
const differences = []
const parsed = (payload) => {
  try {
    return typeof payload === 'string' ? JSON.parse(payload) : payload ?? null
  } catch {
    return payload
  }
}
const [filters, ...lines] = readFileSync(cases, 'utf8').split('\n').filter(Boolean)
const filtersOf = JSON.parse(filters)
for (const line of lines) {
  const { user, flags } = JSON.parse(line)
  const result = await ph.getAllFlagsAndPayloads(user.distinct_id, {
    groups: user.groups,
    personProperties: user.person,
    groupProperties: user.group,
    onlyEvaluateLocally: true,
  })
  for (const [flag, [value, payload]] of Object.entries(flags)) {
    if (!(flag in (result.featureFlags ?? {}))) {
      unresolved += 1
      continue
    }
    compared += 1
    const sdk = [result.featureFlags[flag], parsed(result.featureFlagPayloads?.[flag])]
    const server = [value, parsed(payload)]
    if (JSON.stringify(sdk) !== JSON.stringify(server) && differences.length < 20) {
      differences.push({ flag, filters: filtersOf[flag], user, sdk, server })
    }
  }
}
process.stdout.write(JSON.stringify({ compared, unresolved, differences, complaints }) + '\n')
await ph.shutdown()
