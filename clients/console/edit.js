/** Write a key beside its value: a form with the value as it is, and a tombstone after a question. */

import { button, element, hint, row, say, submit } from "./dom.js";
import { guarded } from "./problem.js";
import { Failed, keyPath, layoutOf, problemFrom, send } from "./session.js";

/** Topics that this caller may not write, as far as a write has shown. */
const refused = new Set();
export const isRefused = (topic) => refused.has(topic);
export function noteRefusal(topic, status) {
  if (status === 401 || status === 403) refused.add(topic);
}

async function write(method, { topic, key, format }, { schema, ...options } = {}) {
  const answer = await send(method, keyPath(topic, key), { query: { key_format: format, schema }, ...options });
  noteRefusal(topic, answer.status);
  if (answer.status >= 300) throw new Failed(problemFrom(answer), answer);
  return JSON.parse(answer.text);
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Buttons and form; `current()` is the newest answer about the key, null before the first. */
export function writer(wanted, current) {
  const place = element("div", { class: "writer" });
  const result = element("div", { role: "status" });
  const present = () => current()?.status === 200;
  const positionNow = () => (present() ? current().headers.get("Keylane-Position") : null);

  function buttons(said = null) {
    if (said !== null) result.replaceChildren(said);
    if (refused.has(wanted.topic)) {
      place.replaceChildren(hint("You may read this topic, and not write it."), result);
      return;
    }
    place.replaceChildren(
      element("p", { class: "row" },
        button(present() ? "Edit" : "Write a value", () => guarded(result, openForm)),
        present() && button("Delete", ask, { class: "danger" })),
      result);
  }

  async function attempt(task) {
    await guarded(result, task);
    if (refused.has(wanted.topic)) place.replaceChildren(result);
  }

  async function openForm() {
    if (present() && current().headers.get("Content-Type") === "application/octet-stream") {
      result.replaceChildren(hint("This value is bytes, which a form does not hold. Use keylane put, or PUT with a file."));
      return;
    }
    const schema = (await layoutOf(wanted.topic))?.options.value_format === "registry" ? "latest" : undefined;
    const before = present() ? current().text : "";
    let begun = positionNow();
    let isWarned = false;
    const rows = before.split("\n").reduce((sum, line) => sum + Math.ceil((line.length + 1) / 70), 1);
    const input = element("textarea", { rows: Math.min(18, Math.max(6, rows)), spellcheck: "false", value: before });
    const warning = element("p", { class: "warning", role: "alert", hidden: true });
    const warn = (text) => {
      warning.replaceChildren(text);
      warning.hidden = false;
    };
    const form = element("form", { class: "card edit" },
      element("label", {}, `Value of ${wanted.key}`, input), warning,
      row(submit("Write"), button("Cancel", () => buttons("")),
        element("span", { class: "hint" }, `A record of ${wanted.topic} in Kafka${schema ? ", JSON by the topic's latest schema" : ""}; the history stays.`)));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (positionNow() !== begun) {
        begun = positionNow();
        warn(`The key has changed since you began${begun ? `: position ${begun}` : ""}. Write again to write over it.`);
        return;
      }
      if (!isWarned && isJson(before) && !isJson(input.value)) {
        isWarned = true;
        warn("This is not JSON, and the value was. Write again to write it as text.");
        return;
      }
      const headers = { "Content-Type": isJson(input.value) ? "application/json" : "text/plain; charset=utf-8" };
      attempt(async () => {
        const { position } = await write("PUT", wanted, { schema, headers, body: input.value });
        buttons(`Written: position ${position}`);
        say(`Written: position ${position}`);
      });
    });
    result.replaceChildren();
    place.replaceChildren(form, result);
    input.focus();
  }

  function ask() {
    const dialog = element("dialog", { "aria-labelledby": "delete-title" },
      element("form", { method: "dialog" },
        element("h2", { id: "delete-title" }, "Delete this key?"),
        element("p", {}, `A tombstone is written to ${wanted.topic}: readers no longer find `, element("code", {}, wanted.key), ". Its records stay in Kafka until compaction."),
        element("div", { class: "row" }, element("button", { type: "submit", value: "delete", class: "danger" }, "Delete"), element("button", { type: "submit", value: "cancel" }, "Cancel"))));
    dialog.addEventListener("close", () => {
      const isMeant = dialog.returnValue === "delete";
      dialog.remove();
      if (!isMeant) return;
      attempt(async () => {
        const { position } = await write("DELETE", wanted);
        buttons(`Deleted: position ${position}`);
        say(`Deleted: position ${position}`);
      });
    });
    place.append(dialog);
    dialog.showModal();
  }

  buttons();
  return {
    place,
    /** The key has another state: its buttons follow, unless somebody writes. */
    refresh() {
      if (!place.querySelector("form, dialog")) buttons();
    },
  };
}
