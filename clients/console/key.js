/** One key: its value, its changes as they come, and its history. */

import { badge, button, check, element, facts, field, hint, say } from "./dom.js";
import { writer } from "./edit.js";
import { age, time } from "./format.js";
import { timeline } from "./history.js";
import { pretty, shown } from "./json.js";
import { follow } from "./live.js";
import { sleep } from "./polling.js";
import { explain, guarded } from "./problem.js";
import { Failed, keyPath, problemFrom, read } from "./session.js";
import { topicForm, topicHead } from "./topicbar.js";

const HISTORY_LIMIT = 25;

function valueOf(answer) {
  const type = answer.headers.get("Content-Type") ?? "";
  const timestamp = answer.headers.get("Keylane-Timestamp");
  return [
    element("p", { class: "marks" }, badge("present", "good"),
      answer.headers.get("Keylane-Building") && badge("building", "warn"),
      answer.headers.get("Keylane-Incomplete") && badge("incomplete", "bad")),
    facts([
      ["Position", answer.headers.get("Keylane-Position")],
      ["Written", timestamp && time(timestamp)],
      ["Watermark of its lane", answer.headers.get("Keylane-Watermark")],
      ["Age when read", answer.headers.has("Keylane-Age-Ms") ? age(Number(answer.headers.get("Keylane-Age-Ms"))) : "unknown"],
      ["Type", type],
    ]),
    shown(pretty(answer, type)),
  ];
}

function absent(answer) {
  return [
    element("p", { class: "marks" }, badge("absent")),
    element("p", {}, "The topic has no record under this key: it was never written, or was deleted."),
    facts([["Watermark of its lane", answer.headers.get("Keylane-Watermark")], ["Age when read", age(Number(answer.headers.get("Keylane-Age-Ms")))]]),
  ];
}

function form(params) {
  const key = params.get("key") ?? "";
  return topicForm(params, "key", [
    field("Key", { name: "key", value: key, required: true }),
    check("The key is base64", "base64", params.has("base64")),
  ], "Read", !key);
}

/** The history's list, its pages by cursor. Without one, `missing` says how a topic keeps it. */
function historySection(wanted, signal) {
  const list = element("ol", { class: "timeline" });
  const below = element("div");
  let records = [];
  async function page(cursor) {
    const query = { limit: HISTORY_LIMIT, cursor, key_format: wanted.format };
    const found = await read(keyPath(wanted.topic, wanted.key, "history"), query, signal);
    records = cursor ? [...records, ...found.records] : found.records;
    list.replaceChildren(...timeline(records, !found.next));
    below.replaceChildren();
    if (!records.length) below.append(hint("No records are kept of this key."));
    if (found.next) below.append(button("Earlier records", () => guarded(below, () => page(found.next))));
  }
  const refresh = async () => {
    try {
      await page("");
    } catch (error) {
      if (error.name === "no-history") below.replaceChildren(hint("This topic keeps no history. history_count or history_age in keylane.toml changes that."));
      else throw error;
    }
  };
  return { section: element("section", { hidden: true }, element("h2", {}, "History"), list, below), refresh, below };
}

export async function show(main, params, signal) {
  const key = params.get("key") ?? "";
  const topic = topicHead(main, params, "key", (name) => (key ? `Key ${key}` : `A key of ${name}`));
  if (!topic) return;
  main.append(form(params));
  if (!key) return;
  const wanted = { topic, key, format: params.has("base64") ? "base64" : "" };
  const state = element("p", { class: "live", role: "status" }, "Reading");
  const value = element("div", { id: "value" });
  const history = historySection(wanted, signal);
  let newest = null;
  const writing = writer(wanted, () => newest);
  main.append(element("section", {}, element("h2", {}, "Value"), state, value, writing.place), history.section);
  let changed = 0;
  let trouble = "";
  await follow(
    wanted,
    signal,
    async (answer) => {
      trouble = "";
      const isPresent = answer.status === 200;
      const isAbsent = answer.status === 404 && answer.headers.has("Keylane-Watermark");
      newest = answer;
      writing.refresh();
      state.replaceChildren(isPresent || isAbsent ? element("span", { class: "dot", "aria-hidden": "true" }) : "", isPresent || isAbsent ? "Live: a change appears here by itself" : "");
      value.replaceChildren(...(isPresent ? valueOf(answer) : isAbsent ? absent(answer) : [await explain(new Failed(problemFrom(answer), answer))]));
      if (changed++) {
        value.classList.add("changed");
        say(isPresent ? `Changed: position ${answer.headers.get("Keylane-Position")}` : "The key was deleted");
        sleep(1500, signal).then(() => value.classList.remove("changed"), () => {});
      }
      history.section.hidden = !isPresent && !isAbsent;
      if (!history.section.hidden) await guarded(history.below, history.refresh);
    },
    async (answer, given) => {
      const error = given ?? new Failed(problemFrom(answer), answer);
      // The same trouble again is not said again.
      if (error.name === trouble) return;
      trouble = error.name;
      state.replaceChildren("Not live: trying again");
      value.replaceChildren(await explain(error));
    },
  );
}
