/** Records as a file: CSV for tables, JSON lines for programs. */

import { button, element } from "./dom.js";
import { fieldAt } from "./fields.js";
import { count, size } from "./format.js";
import { inline, parse } from "./json.js";
import { explain } from "./problem.js";
import { Failed, pathOf, readerOf } from "./session.js";

const MOST = 100_000;
/** Bytes at the end of a snapshot in which its last line is. */
const TAIL = 65_536;
const OWN = ["key", "key_format", "partition", "offset", "timestamp"];

const textOf = (value) => (value === undefined || value === null ? "" : typeof value === "string" ? value : inline(value));
const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** RFC 4180. With `fields`, each is a column; without, the value is. */
export function csvOf(records, fields) {
  const heads = [...OWN, ...(fields.length ? fields : ["value_format", "value"])];
  const rows = records.map((record) => [...OWN.map((name) => record[name]), ...(fields.length ? fields.map((path) => fieldAt(record.value, path)) : [record.value_format, record.value])]);
  return [heads, ...rows].map((row) => `${row.map((each) => cell(textOf(each))).join(",")}\r\n`).join("");
}

export const linesOf = (records) => records.map((each) => `${inline(each)}\n`).join("");

const FORMS = { csv: ["CSV", "text/csv", csvOf], jsonl: ["JSON lines", "application/x-ndjson", linesOf] };

function save(name, type, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type: `${type};charset=utf-8` }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Save the lines of a topic's snapshot. A link would send no token, and would not say whether the file is complete. */
async function saveWhole(topic, status, stop) {
  const reader = await readerOf(pathOf("topics", topic, "snapshot"));
  const parts = [];
  for (let bytes = 0; ; ) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) break;
    if (stop.hidden || !status.isConnected) return reader.cancel();
    // The browser may have a Blob on its disk.
    parts.push(new Blob([value]));
    bytes += value.length;
    status.replaceChildren(size(bytes));
  }
  const last = (await new Blob(parts).slice(-TAIL).text()).trimEnd().split("\n").pop().trimStart();
  if (!last.startsWith('{"end"')) {
    throw new Failed(last.startsWith('{"problem"') ? parse(last).problem : { title: "The topic was not read to its end", detail: "The connection broke: try again." });
  }
  save(`${topic}.snapshot.jsonl`, "application/x-ndjson", parts);
  status.replaceChildren("The whole topic, complete");
}

/** Buttons that save what is shown, or all. `shown()`: records; `fields()`: columns; `all()`: an async iterator of pages. */
export function exportBar(name, { shown, fields, all }) {
  const status = element("div", { class: "hint", role: "status" });
  const stop = button("Stop", () => { stop.hidden = true; }, { hidden: true });
  const what = element("select", { "aria-label": "What to export" }, element("option", { value: "shown" }, "what is shown"), element("option", { value: "all" }, "all of it"));
  async function run([label, type, form], ending) {
    const records = [];
    try {
      if (what.value === "shown") records.push(...shown());
      else {
        stop.hidden = false;
        for await (const page of all()) {
          records.push(...page);
          status.replaceChildren(`${count(records.length)} records`);
          if (stop.hidden || records.length >= MOST || !status.isConnected) break;
        }
        stop.hidden = true;
      }
      if (!status.isConnected) return;
      save(`${name}.${ending}`, type, [form(records, fields())]);
      status.replaceChildren(`${count(records.length)} records as ${label}${records.length >= MOST ? ": the most that this page exports" : ""}`);
    } catch (error) {
      stop.hidden = true;
      if (error.name !== "AbortError") status.replaceChildren(await explain(error));
    }
  }
  async function runWhole() {
    stop.hidden = false;
    try {
      await saveWhole(name, status, stop);
    } catch (error) {
      status.replaceChildren(await explain(error));
    }
    stop.hidden = true;
  }
  const whole = button("Whole topic", runWhole, { title: "All records as of one position, as lines of JSON" });
  const buttons = Object.entries(FORMS).map(([ending, form]) => button(form[0], () => run(form, ending)));
  return element("div", { class: "row export" }, element("span", { class: "hint" }, "Export"), what, buttons, whole, stop, status);
}
