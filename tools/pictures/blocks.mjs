// Photographs the page of the operator: node blocks.mjs PAGE.html FILE.png. A server on loopback has the page and the fixed
// documents that it asks for.

import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";

import { open } from "./browser.mjs";

const [page, file] = process.argv.slice(2);
const fixed = (name) => readFileSync(new URL(`fixed/${name}.json`, import.meta.url));
const documents = { "/blocks": readFileSync(page), "/blocks/state": fixed("blocks-state"), "/blocks/why": fixed("blocks-why") };
const server = createServer((request, answer) => {
  const { pathname } = new URL(request.url, "http://localhost");
  const type = pathname === "/blocks" ? "text/html; charset=utf-8" : "application/json";
  answer.setHeader("content-type", type).end(documents[pathname] ?? "");
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${server.address().port}/blocks#192.0.2.7`;
const { picture } = await open(url, "light", 1000, { scripts: true });
writeFileSync(file, picture);
server.close();
server.closeAllConnections();
