// What the drivers of the JavaScript SDKs, node.mjs and browser.mjs, have in common.

import { createHash } from 'node:crypto'

// Half a surrogate pair, which JSON can carry and UTF-8 cannot, is what the server makes of it.
const wellFormed = (_name, value) => (typeof value === 'string' ? value.toWellFormed() : value)

// Prints what the server should know afterwards; python.py has the kinds.
export const say = (kind, what) => process.stdout.write(JSON.stringify({ kind, ...what }, wellFormed) + '\n')

// A version 7 uuid, as the SDKs make them, that depends on nothing but its arguments.
export const eventId = (who, name) => {
  const hex = createHash('sha256').update(`${who}/${name}`).digest('hex')
  return `0192f0c1-7f3a-7${hex.slice(0, 3)}-8${hex.slice(3, 6)}-${hex.slice(6, 18)}`
}

// Properties of every kind of value.
export const values = {
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
}
