// Looks at the pages of a server in Chromium, as a reader with a key. Prints a line of JSON for each thing found:
//
//     step       a part of the journey that worked: what
//     violation  a finding of axe of serious or critical impact: page, theme, rule, nodes
//     overflow   a page that is wider than its window: page, width, window, and what is too wide
//     lost       a place in a page that the keyboard reaches and the eye does not find: page, node
//     dead       a page that says less without JavaScript: page
//     complaint  a message of the console, an error, or a request to another server: text
//     hit        a page on which a text of somebody ran as a script: page
//     seen       at the end, how many looks at pages were taken: looks
//
//     pages.mjs PLAYWRIGHT_MODULES AXE_MODULES URL PERSONAL_KEY PATH...
//
// Each PATH is within /project/1/, or begins with a slash.

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

import { say } from './driver.mjs'

const [modules, axeModules, url, personalKey, ...paths] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')
const axe = readFileSync(join(axeModules, 'axe-core/axe.min.js'), 'utf8')

const DEADLINE_MILLIS = 60_000
// A narrow window, and one of 1280 pixels at 200 %.
const WINDOWS_PX = [320, 640]
// Presses of Tab on a page.
const TABS = 30

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
})
const context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
const page = await context.newPage()
page.setDefaultTimeout(DEADLINE_MILLIS)
page.on('dialog', (dialog) => dialog.accept())
page.on('pageerror', (error) => say('complaint', { text: `error: ${error.name}: ${error.message} ${error.stack}` }))
page.on('console', (message) => {
  if (['error', 'warning'].includes(message.type())) {
    say('complaint', { text: `${message.text()} on ${page.url()}` })
  }
})
context.on('request', (request) => {
  const to = request.url()
  if (!to.startsWith(`${url}/`) && !to.startsWith('data:')) say('complaint', { text: `request to ${to}` })
})
const step = (what) => say('step', { what })
const address = (path) => (path.startsWith('/') ? url + path : `${url}/project/1/${path}`)
let looks = 0

// What axe says of the page as it is.
const check = async (path, theme) => {
  const [colorScheme, forcedColors] = theme === 'forced' ? ['light', 'active'] : [theme, 'none']
  await page.emulateMedia({ colorScheme, forcedColors, reducedMotion: 'reduce' })
  await page.evaluate(axe)
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
  for (const { id, impact, nodes } of found.violations) {
    if (!['serious', 'critical'].includes(impact)) continue
    say('violation', { page: path, theme, rule: id, nodes: nodes.slice(0, 3).map((node) => node.html.slice(0, 200)) })
  }
  looks += 1
}

// ---- the key signs in

await page.goto(`${url}/login`)
await page.fill('input[name=key]', personalKey)
await page.click('button:has-text("Sign in")')
await page.waitForURL(/\/home$/)
step('sign in')

// ---- a flag, from the first field to the history

await page.goto(address('feature_flags'))
await page.click('text=New flag')
await page.fill('input[name=key]', 'from-browser')
await page.fill('input[name="c1.p1.key"]', 'plan')
await page.fill('input[name="c1.p1.value"]', 'pro')
await page.click('text=How many are these?')
await page.waitForSelector('text=persons match')
if ((await page.inputValue('input[name="c1.p1.key"]')) === 'plan') step('reach')
await page.click('button.main:has-text("Save")')
await page.waitForURL(/feature_flags\/\d+$/)
await page.click('text=Turn off')
await page.waitForSelector('text=Turn on')
await page.click('text=Undo')
await page.waitForSelector('text=Turn off')
step('flag')

// ---- an insight onto a dashboard, which is arranged and shared

await page.goto(address('insights/trends?a=seen'))
await page.fill('form.save input[name=name]', 'Seen')
await page.click('form.save button')
await page.waitForURL(/insights\/[A-Za-z0-9]{8}$/)
await page.goto(address('dashboard'))
await page.fill('form.save input[name=name]', 'Board')
await page.click('form.save button')
await page.waitForURL(/dashboard\/\d+$/)
await page.click('text=Edit and share').catch(() => {})
await page.selectOption('select[name=insight]', { label: 'Seen' })
await page.click('text=Add insight')
await page.waitForSelector('text=Full width')
await page.click('text=Full width')
await page.waitForSelector('text=Half width')
await page.click('text=Create public link')
const link = await page.textContent('#link')
step('dashboard')
const stranger = await browser.newContext()
const shared = await stranger.newPage()
shared.on('console', (message) => message.type() === 'error' && say('complaint', { text: message.text() }))
await shared.goto(link)
if ((await shared.locator('.tile svg').count()) > 0) step('shared')
await stranger.close()

// ---- keys

await page.goto(address('home'))
await page.keyboard.press('?')
await page.waitForSelector('dialog[open] kbd')
await page.keyboard.press('Escape')
await page.keyboard.press('g')
await page.keyboard.press('f')
await page.waitForURL(/feature_flags$/)
step('keys')

// The places that the keyboard reaches: each is in the window, and marked.
const tab = async (path) => {
  for (let at = 0; at < TABS; at += 1) {
    await page.keyboard.press('Tab')
    const lost = await page.evaluate(() => {
      const own = document.activeElement
      if (!own || own === document.body) return null
      const box = own.getBoundingClientRect()
      const style = getComputedStyle(own)
      const isMarked = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0
      const isSeen = box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth
      // The button that Enter presses is no place of its own.
      return isMarked && isSeen ? null : own.outerHTML.slice(0, 200)
    })
    if (lost) return say('lost', { page: path, node: lost })
  }
}

// ---- every page, in three themes, narrow, at 200 %, by keyboard, and without scripts

const silent = await browser.newContext({ javaScriptEnabled: false, storageState: await context.storageState() })
const still = await silent.newPage()
still.setDefaultTimeout(DEADLINE_MILLIS)

const own = new URL(link).pathname
for (const path of [...paths, own, '/help/keys']) {
  await page.goto(address(path))
  await check(path, 'light')
  await check(path, 'dark')
  await check(path, 'forced')
  await page.emulateMedia({ colorScheme: 'light', forcedColors: 'none' })
  for (const window of WINDOWS_PX) {
    await page.setViewportSize({ width: window, height: 800 })
    const width = await page.evaluate(() => document.documentElement.scrollWidth)
    if (width > window) {
      const wide = await page.evaluate((window) => {
        const all = [...document.querySelectorAll('main *, header *, nav *')]
        const own = all.filter((node) => node.getBoundingClientRect().right > window + 0.5)
        return own.slice(-3).map((node) => node.outerHTML.slice(0, 200))
      }, window)
      say('overflow', { page: path, width, window, wide })
    }
  }
  await page.setViewportSize({ width: 1400, height: 900 })
  await tab(path)
  // What scripts alone can do is hidden without them; all else is the same text.
  await still.goto(address(path))
  const heading = await still.textContent('h1')
  const text = await still.evaluate(() => document.querySelector('main').innerText.length).catch(() => 0)
  if (!heading || text === 0) say('dead', { page: path })
  if (await page.evaluate(() => window.__hit)) say('hit', { page: path })
}

// ---- a question without scripts

await still.goto(address('insights/trends'))
await still.fill('input[name=a]', 'seen')
await still.click('form.question button.main, form.question button')
if ((await still.locator('#result svg.chart-plot').count()) > 0) step('without scripts')
say('seen', { looks })
await browser.close()
