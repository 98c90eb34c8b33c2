// Asks a server for flags through OpenFeature's SDK and its released provider of remote evaluation.
//
//     ofrep.mjs NODE_MODULES URL PROJECT_KEY
//
// Reads and prints as ofrep.py. The key goes without a scheme, as some documentation has it.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [modules, url, projectKey] = process.argv.slice(2)
const require = createRequire(`${modules}/`)
const { OpenFeature } = require('@openfeature/server-sdk')
const { OFREPProvider } = require('@openfeature/ofrep-provider')

const headers = [['Authorization', projectKey]]
await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: url, headers }))
const client = OpenFeature.getClient()
// What fails is in the details.
client.setLogger({ error() {}, warn() {}, info() {}, debug() {} })
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line)
  const context = { targetingKey: asked.key, ...asked.context }
  const ask = typeof asked.default === 'boolean' ? 'getBooleanDetails' : 'getStringDetails'
  const { value, variant, reason, errorCode } = await client[ask](asked.flag, asked.default, context)
  console.log(JSON.stringify({ value, variant: variant ?? null, reason, error: errorCode ?? null }))
}
