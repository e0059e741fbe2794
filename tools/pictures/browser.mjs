// Opens a page in headless Chromium, without any package: DevTools over a pipe (file descriptors 3 and 4).
//
//   node browser.mjs URL FILE.png [dark]   photographs the page
//
// `open(url, scheme)` returns the text of the page, the requests it made, and what the browser logged. With `scripts` the
// scripts of the page run, and `act` is evaluated in it once it was loaded.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const WIDTH = 1200;
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--hide-scrollbars",
  "--remote-debugging-pipe",
];

// Chromium with a profile of its own, and a function that sends it a command.
function start() {
  const profile = mkdtempSync(join(tmpdir(), "chromium-"));
  const browser = spawn("chromium", [...FLAGS, `--user-data-dir=${profile}`, "about:blank"], {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
  });
  const waiting = new Map();
  const listeners = [];
  let number = 0;
  let rest = "";
  browser.stdio[4].on("data", (data) => {
    const messages = (rest + data).split("\0");
    rest = messages.pop();
    for (const text of messages) {
      const message = JSON.parse(text);
      if (message.id === undefined) {
        listeners.forEach((listener) => listener(message));
        continue;
      }
      const { resolve, reject } = waiting.get(message.id);
      waiting.delete(message.id);
      message.error ? reject(new Error(message.error.message)) : resolve(message.result);
    }
  });
  const ended = new Promise((resolve) => browser.on("close", resolve));
  browser.on("error", (error) => {
    console.error(`chromium cannot be started: ${error.message}`);
    process.exit(1);
  });
  const send = (method, params = {}, sessionId = undefined) =>
    new Promise((resolve, reject) => {
      number += 1;
      waiting.set(number, { resolve, reject });
      browser.stdio[3].write(JSON.stringify({ id: number, method, params, sessionId }) + "\0");
    });
  const stop = async () => {
    await send("Browser.close").catch(() => {});
    await ended;
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  return { send, listeners, stop };
}

// Opens `url` in the colour scheme `light` or `dark`, and watches it for some milliseconds after it was loaded.
export async function open(url, scheme, patience = 500, { scripts: run = false, act = "" } = {}) {
  const { send, listeners, stop } = start();
  try {
    const { targetId } = await send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    const page = (method, params) => send(method, params, sessionId);
    const requests = [];
    const logged = [];
    const loaded = new Promise((resolve) => {
      listeners.push(({ method, params }) => {
        if (method === "Network.requestWillBeSent") requests.push(params.request.url);
        if (method === "Log.entryAdded") logged.push(`${params.entry.level}: ${params.entry.text}`);
        if (method === "Runtime.consoleAPICalled") logged.push(`console.${params.type}`);
        if (method === "Runtime.exceptionThrown") logged.push(params.exceptionDetails.text);
        if (method === "Page.loadEventFired") resolve();
      });
    });
    for (const domain of ["Page", "Network", "Log", "Runtime"]) await page(`${domain}.enable`);
    await page("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    await page("Emulation.setDeviceMetricsOverride", { width: WIDTH, height: 800, deviceScaleFactor: 1, mobile: false });
    await page("Emulation.setScriptExecutionDisabled", { value: !run });
    await page("Page.navigate", { url });
    await loaded;
    // Requests that follow the load, such as that for an icon.
    const rest = () => new Promise((resolve) => setTimeout(resolve, patience));
    await rest();
    const value = async (expression) =>
      (await page("Runtime.evaluate", { expression, returnByValue: true })).result.value;
    if (act) {
      await value(act);
      await rest();
    }
    const text = await value("document.body.innerText");
    const background = await value("getComputedStyle(document.body).backgroundColor");
    const scripts = await value("document.querySelectorAll('script').length");
    const overflow = await value("document.documentElement.scrollWidth > window.innerWidth");
    const height = await value("Math.ceil(document.documentElement.getBoundingClientRect().height)");
    const clip = { x: 0, y: 0, width: WIDTH, height, scale: 1 };
    const { data } = await page("Page.captureScreenshot", { format: "png", clip, captureBeyondViewport: true });
    const picture = Buffer.from(data, "base64");
    return { text, background, scripts, overflow, requests, logged, picture };
  } finally {
    await stop();
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const [url, file, scheme] = process.argv.slice(2);
  const { picture } = await open(url, scheme ?? "light");
  writeFileSync(file, picture);
}
