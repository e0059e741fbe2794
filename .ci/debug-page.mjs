// The checks of .ci/debug-page: node debug-page.mjs FOLDER-OF-PROGRAMS FOLDER-FOR-PICTURES

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { open } from "../tools/pictures/browser.mjs";

const [programs, pictures] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "debug-page-"));
const kubeconfig = join(folder, "kubeconfig");
const children = [];

function start(name, flags, environment = {}) {
  const env = { ...process.env, ...environment };
  const child = spawn(join(programs, name), flags, { stdio: ["ignore", "pipe", "inherit"], env });
  children.push(child);
  return child;
}

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

// Ends a program, and waits for its end.
async function end(child) {
  const ended = new Promise((resolve) => child.on("close", resolve));
  child.kill();
  await ended;
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

async function create(server, path, object) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(object) });
  assert.ok(answer.ok, `POST ${path}: ${answer.status} ${await answer.text()}`);
}

// An API server with the kind, a Website that works, and one whose ConfigMap belongs to another.
async function cluster() {
  const apiserver = start("reeve-apiserver", ["--kubeconfig", kubeconfig]);
  const server = await new Promise((resolve) => {
    apiserver.stdout.on("data", (line) => resolve(String(line).trim().replace("ready ", "")));
  });
  const definition = JSON.parse(execFileSync(join(programs, "website"), ["crd"]));
  await create(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);
  await create(server, "/api/v1/namespaces", { metadata: { name: "website-system" } });
  const map = (name) => ({ metadata: { name }, data: {} });
  await create(server, "/api/v1/namespaces/website-system/configmaps", map("directory"));
  await create(server, "/api/v1/namespaces/default/configmaps", map("flowers"));
  const sites = "/apis/web.example.com/v1/namespaces/default/websites";
  await eventually(async () => assert.ok((await fetch(server + sites)).ok));
  for (const name of ["books", "flowers"]) {
    const site = { apiVersion: "web.example.com/v1", kind: "Website", metadata: { name } };
    await create(server, sites, { ...site, spec: { host: `${name}.example.com`, page: "hello" } });
  }
}

// The URL of the page of a program with a failing key.
async function program() {
  const port = await freePort();
  const flags = ["--health-probe-bind-address=0", "--metrics-secure=false", `--metrics-bind-address=127.0.0.1:${port}`];
  start("website", [...flags, "--leader-elect", "--leader-election-namespace=default"], { KUBECONFIG: kubeconfig });
  const url = `http://127.0.0.1:${port}/debug`;
  await eventually(async () => {
    const reports = await (await fetch(`${url}?format=json`)).json();
    assert.equal(reports.queues[0].failing, 1, "one key fails");
    assert.ok(reports.controllers[0].lastSuccess, "another is done");
  });
  return url;
}

async function check() {
  await cluster();
  const url = await program();
  const backgrounds = [];
  for (const scheme of ["light", "dark"]) {
    const page = await open(url, scheme);
    writeFileSync(join(pictures, `${scheme}.png`), page.picture);
    const parts = ["Controllers", "Queues", "Informers", "Leader election", "Own writes"];
    for (const text of [...parts, "error queues website: 1 key fails, default/flowers", "leading for", "Website (web.example.com/v1)"]) {
      assert.ok(page.text.includes(text), `${scheme}: no ${text} in\n${page.text}`);
    }
    assert.deepEqual(page.requests, [url], `${scheme}: requests`);
    assert.deepEqual(page.logged, [], `${scheme}: log of the browser`);
    assert.equal(page.scripts, 0);
    assert.equal(page.overflow, false, `${scheme}: wider than the window`);
    backgrounds.push(page.background);
  }
  assert.notEqual(backgrounds[0], backgrounds[1], "dark is not light");
  for (const name of ["controllers", "queues", "informers", "election", "writes"]) {
    const page = await open(`${url}/${name}`, "light");
    assert.deepEqual([page.requests, page.logged], [[`${url}/${name}`], []]);
    assert.ok(page.text.includes("website"), page.text);
  }
  const again = await open(`${url}?refresh=2`, "light", 3000);
  assert.ok(again.requests.length > 1, "it was not loaded again");
  assert.deepEqual(new Set(again.requests), new Set([`${url}?refresh=2`]));
  console.log(`the page /debug is right in light and dark: ${pictures}`);
}

try {
  await check();
} finally {
  for (const child of children.reverse()) await end(child);
  rmSync(folder, { recursive: true, force: true });
}
