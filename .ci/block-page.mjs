// The checks of .ci/block-page: node block-page.mjs FOLDER-OF-PROGRAMS FOLDER-FOR-PICTURES

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { open } from "../tools/pictures/browser.mjs";

const [programs, pictures] = process.argv.slice(2);
const markup = "<img src=x onerror=alert(1)><b>bold</b>";

// Calls `check` until it does not throw.
async function eventually(check) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await check();
    } catch (error) {
      if (attempt === 300) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

// An API server, a simulated gateway and the operator in one process; what it prints has their addresses.
const operator = spawn(join(programs, "ipblock-operator"), ["dev"], { stdio: ["ignore", "pipe", "inherit"] });
let printed = "";
operator.stdout.on("data", (data) => (printed += data));

async function started() {
  return eventually(() => {
    const found = (pattern) => {
      const match = printed.match(pattern);
      assert.ok(match, `no ${pattern} in ${printed}`);
      return match[1];
    };
    const kubeconfig = readFileSync(found(/export KUBECONFIG=(\S+)/), "utf8");
    return {
      page: found(/The operator's page: +(\S+)/),
      gateway: found(/What the gateway blocks: +(\S+?)\/ /),
      server: kubeconfig.match(/server: "?(http[^\s"]+)/)[1],
    };
  });
}

async function create(server, name, spec) {
  const block = { apiVersion: "ops.yiiong.top/v1", kind: "IPBlock", metadata: { name }, spec };
  const url = `${server}/apis/ops.yiiong.top/v1/namespaces/default/ipblocks`;
  const headers = { "content-type": "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(block) });
  assert.ok(answer.ok, `${name}: ${answer.status} ${await answer.text()}`);
}

async function check() {
  const { page: url, gateway, server } = await started();
  await create(server, "scanner", { ip: "192.0.2.7", duration: "1h", reason: "port scan", source: "manual", by: "alice" });
  await create(server, "range", { ip: "198.51.100.0/24", reason: "botnet" });
  await create(server, "markup", { ip: "192.0.2.9", duration: "2h", reason: markup, source: markup, by: markup });
  await create(server, "office", { ip: "203.0.113.10", duration: "1h" });
  const state = async () => (await fetch(`${url}/state`)).json();
  await eventually(async () => assert.equal((await state()).counts.active, 3));
  await fetch(`${gateway}/faults?fault=500`, { method: "POST" });
  await create(server, "stuck", { ip: "192.0.2.11", duration: "1h", reason: "brute force" });
  await eventually(async () => assert.equal((await state()).counts.failing, 1));

  const backgrounds = [];
  for (const scheme of ["light", "dark"]) {
    const page = await open(url, scheme, 1500, { scripts: true });
    writeFileSync(join(pictures, `${scheme}.png`), page.picture);
    const texts = ["Bans go to xdp at 127.0.0.1", "default/scanner", "in 59m", "manual, by alice", "port scan", "never", "1 block fails", "default/stuck", markup];
    for (const text of texts) assert.ok(page.text.includes(text), `${scheme}: no ${text} in\n${page.text}`);
    for (const request of page.requests) assert.ok(request.startsWith(url), `${scheme}: ${request}`);
    assert.deepEqual(page.logged, [], `${scheme}: log of the browser`);
    assert.equal(page.scripts, 1);
    assert.equal(page.overflow, false, `${scheme}: wider than the window`);
    backgrounds.push(page.background);
  }
  assert.notEqual(backgrounds[0], backgrounds[1], "dark is not light");

  // The search, by the form and by a link.
  const ask = (address) => `document.getElementById("address").value = ${JSON.stringify(address)}; document.querySelector("#ask button").click()`;
  for (const [address, text] of [
    ["192.0.2.7", "192.0.2.7 is banned until"],
    ["198.51.100.77", "198.51.100.77 is banned without end"],
    ["203.0.113.10", "203.0.113.10 is allowlisted"],
    ["192.0.2.11", "192.0.2.11 is not banned yet: banning failed"],
    ["198.18.0.1", "198.18.0.1 is not banned"],
    [markup, "is neither an IP address"],
  ]) {
    const asked = await open(url, "light", 1000, { scripts: true, act: ask(address) });
    assert.ok(asked.text.includes(text), `${address}: no ${text} in\n${asked.text}`);
    if (address !== markup) assert.deepEqual(asked.logged, []);
    for (const request of asked.requests) assert.ok(request.startsWith(url), request);
    const linked = await open(`${url}#${encodeURIComponent(address)}`, "light", 1000, { scripts: true });
    assert.ok(linked.text.includes(text), `${address} by link: no ${text}`);
  }
  const without = await open(url, "light");
  assert.ok(without.text.includes("needs JavaScript"), without.text);

  // Texts of users are text: no element is made of them.
  const count = `document.body.setAttribute("data-made", document.querySelectorAll("img, td b").length); document.getElementById("about").textContent = "made " + document.body.getAttribute("data-made")`;
  const made = await open(url, "light", 1000, { scripts: true, act: count });
  assert.ok(made.text.includes("made 0"), made.text);
  console.log(`the page of the operator is right in light and dark: ${pictures}`);
}

try {
  await check();
} finally {
  const ended = new Promise((resolve) => operator.on("close", resolve));
  operator.kill("SIGINT");
  await ended;
}
