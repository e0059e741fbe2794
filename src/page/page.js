"use strict";
// Everything that comes from blocks is written as text (textContent), never as markup.
const part = (id) => document.getElementById(id);

function element(name, text, style) {
  const made = document.createElement(name);
  made.textContent = text;
  if (style) made.className = style;
  return made;
}

function span(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  let rest = Math.max(0, Math.floor(seconds));
  const parts = [];
  for (const [size, unit] of units) {
    const count = Math.floor(rest / size);
    rest %= size;
    if (count > 0) parts.push(count + unit);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join("") || "0s";
}

// The time of the operator, not of the browser.
let now = Date.now();

function ends(block) {
  if (block.phase !== "active") return "";
  if (!block.until) return "never";
  const left = (Date.parse(block.until) - now) / 1000;
  return left > 0 ? `in ${span(left)}` : `due ${span(-left)} ago`;
}

function origin(block) {
  const parts = [block.source, block.alert && `alert ${block.alert.rule || block.alert.fingerprint}`, block.by && `by ${block.by}`];
  return parts.filter(Boolean).join(", ");
}

// Why a block is banned; for one that is not, why not.
function reason(block, failing) {
  const message = block.message || "";
  return failing || block.phase !== "active" ? message : block.reason || "";
}

function fill(id, blocks, failing) {
  const body = part(id).tBodies[0];
  const rows = blocks.map((block) => {
    const row = document.createElement("tr");
    const end = block.until && block.phase === "active" ? block.until : "";
    const state = block.deleting ? "in deletion" : block.phase || "new";
    const cells = [`${block.namespace}/${block.name}`, block.target, state, ends(block), origin(block), reason(block, failing)];
    cells.forEach((text, place) => {
      const cell = element("td", text);
      if (place === 3) cell.title = end;
      row.append(cell);
    });
    return row;
  });
  if (rows.length === 0) {
    const cell = element("td", "none", "faint");
    cell.colSpan = 6;
    const row = document.createElement("tr");
    row.append(cell);
    rows.push(row);
  }
  body.replaceChildren(...rows);
}

function problems(list) {
  part("problems").replaceChildren(...list.map(([style, text]) => {
    const item = document.createElement("li");
    item.className = style;
    item.append(element("b", style), ` ${text}`);
    return item;
  }));
}

function show(state) {
  now = Date.parse(state.time);
  const role = state.leads ? "leads: it bans and lifts" : "stands by";
  part("about").textContent = `${state.replica || "this replica"} ${role}. ${state.time}`;
  const { counts, configuration } = state;
  const row = document.createElement("tr");
  for (const name of ["active", "due", "pending", "failing", "skipped", "failed", "expired", "deleting", "blocks"]) {
    const bad = (name === "due" || name === "failing") && counts[name] > 0;
    row.append(element("td", counts[name], bad ? "number bad" : "number"));
  }
  part("counts").tBodies[0].replaceChildren(row);
  fill("failing", state.failing, true);
  fill("ending", state.ending, false);
  fill("latest", state.latest, false);
  const list = configuration.problems.map((text) => ["error", text]);
  if (counts.due > 0) list.push(["warning", `${counts.due === 1 ? "1 ban is past its end" : `${counts.due} bans are past their end`}, and not lifted yet`]);
  if (counts.failing > 0) list.push(["warning", `${counts.failing === 1 ? "1 block fails" : `${counts.failing} blocks fail`}: the table below says why`]);
  problems(list);
  const sets = configuration.sets || [];
  const places = [configuration.engine, ...sets.map((name) => `the engine ${name}`)].filter(Boolean);
  part("engine").textContent = places.length > 0 ? `Bans go to ${places.join(", ")}.` : "There is no engine.";
  part("warnings").replaceChildren(...configuration.warnings.map((text) => element("p", text, "faint")));
}

async function get(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" }, cache: "no-store" });
  const text = await answer.text();
  let document = {};
  try {
    document = JSON.parse(text);
  } catch {
    document = { error: text.trim() };
  }
  if (!answer.ok) throw new Error(document.error || `status ${answer.status}`);
  return document;
}

async function poll() {
  if (!document.hidden) {
    try {
      show(await get("blocks/state"));
    } catch (error) {
      problems([["error", `no answer of the operator: ${error.message}; trying again`]]);
    }
  }
  setTimeout(poll, 5000);
}

async function ask(address) {
  part("answer").hidden = false;
  part("facts").replaceChildren();
  try {
    const answer = await get(`blocks/why?address=${encodeURIComponent(address)}`);
    now = Date.parse(answer.time);
    part("summary").textContent = answer.summary;
    const facts = answer.more > 0 ? [...answer.facts, `and ${answer.more} more blocks`] : answer.facts;
    part("facts").replaceChildren(...facts.map((text) => element("p", text)));
    fill("found", answer.blocks, false);
  } catch (error) {
    part("summary").textContent = error.message;
    fill("found", [], false);
  }
}

part("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const address = part("address").value.trim();
  // An address can be linked to: /blocks#192.0.2.7
  history.replaceState(null, "", `#${encodeURIComponent(address)}`);
  ask(address);
});
if (location.hash.length > 1) {
  let address = location.hash.slice(1);
  try {
    address = decodeURIComponent(address);
  } catch {
    // It was not written by this page: it is shown as it is.
  }
  part("address").value = address;
  ask(address);
}
poll();
