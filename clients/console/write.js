/** Write a record to a topic: key, value, headers, and a schema where the topic has one. */

import { isJson, isRefused, noteRefusal } from "./edit.js";
import { button, check, choice, element, field, hint, reading, say, submit } from "./dom.js";
import { inline, parse } from "./json.js";
import { guarded } from "./problem.js";
import { Failed, keyPath, layoutOf, pathOf, problemFrom, send } from "./session.js";
import { topicHead } from "./topicbar.js";

const KEYS = [["text", "text"], ["base64", "bytes, in base64"], ["none", "no key"]];
const VALUES = [["json", "JSON"], ["text", "text"], ["base64", "bytes, in base64"], ["tombstone", "none: a tombstone"]];
const BY_SCHEMA = [["latest", "JSON, by the latest schema"], ["id", "JSON, by the schema with this id"]];
/** Of REST Proxy v3, whose paths name a cluster; it is not checked. */
const CLUSTER = "lkc-0";

const inBase64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
const bytesOf = (base64) => Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));

/** A key or value as REST Proxy v3 takes it, as JSON; null for none. */
function contentOf(form, text, schemaId) {
  if (form === "none" || form === "tombstone") return null;
  if (form === "latest" || form === "registry") return `{"data": ${text}}`;
  if (form === "id") return `{"schema_id": ${Number(schemaId)}, "data": ${text}}`;
  if (form === "json") return `{"type": "JSON", "data": ${text}}`;
  return inline({ type: form === "base64" ? "BINARY" : "STRING", data: text });
}

/** PUT takes values as reads show them. What it has no place for, headers and records without a key, v3 takes. */
function requestOf(topic, given, headers) {
  const query = { raw: given.raw && "true" };
  if (!headers.length && given.keyForm !== "none" && given.keyForm !== "registry") {
    const path = keyPath(topic, given.key);
    query.key_format = given.keyForm === "base64" && "base64";
    if (given.form === "tombstone") return ["DELETE", path, { query }];
    const isJsonForm = given.form === "json" || given.form === "latest" || given.form === "id";
    const type = isJsonForm ? "application/json" : given.form === "text" ? "text/plain; charset=utf-8" : "application/octet-stream";
    if (given.form === "latest") query.schema = "latest";
    if (given.form === "id") query.schema = given.schema;
    return ["PUT", path, { query, headers: { "Content-Type": type }, body: given.form === "base64" ? bytesOf(given.value) : given.value }];
  }
  const parts = {
    key: contentOf(given.keyForm, given.key, ""),
    value: contentOf(given.form, given.value, given.schema),
    headers: headers.length ? inline(headers.map(({ name, value }) => ({ name, value: inBase64(value) }))) : null,
  };
  const body = `{${Object.entries(parts).filter(([, part]) => part).map(([name, part]) => `"${name}": ${part}`).join(", ")}}`;
  return ["POST", pathOf("v3", "clusters", CLUSTER, "topics", topic, "records"), { query, headers: { "Content-Type": "application/json" }, body }];
}

/** The position that was written. v3 reports a failure in an answer whose status is 200. */
async function write(topic, given, headers) {
  const [method, path, options] = requestOf(topic, given, headers);
  const answer = await send(method, path, options);
  noteRefusal(topic, answer.status);
  if (answer.status >= 300) throw new Failed(problemFrom(answer), answer);
  const found = parse(answer.text);
  if (found.error_code >= 300) throw new Failed({ title: "The record was not written", detail: found.message, code: String(found.error_code) });
  return found.position ?? (found.id ? `queued as ${found.id}` : `${found.partition_id}:${found.offset}`);
}

function headerRow() {
  const row = element("div", { class: "row header" },
    element("input", { name: "headerName", "aria-label": "Name of a header", placeholder: "name", autocomplete: "off", spellcheck: "false" }),
    element("input", { name: "headerValue", "aria-label": "Value of a header", placeholder: "value", autocomplete: "off", spellcheck: "false" }),
    button("Remove", () => row.remove()));
  return row;
}

/** What is wrong with what was typed, before it is sent. */
function faultOf(given) {
  if (["json", "latest", "id"].includes(given.form) && !isJson(given.value)) return "The value is not JSON.";
  if (given.keyForm === "registry" && !isJson(given.key)) return "The key is not JSON.";
  for (const [name, form] of [["key", given.keyForm], ["value", given.form]]) {
    if (form === "base64" && !/^[A-Za-z0-9+/]*={0,2}$/.test(given[name])) return `The ${name} is not base64.`;
  }
  if (given.form === "id" && !/^[1-9]\d{0,9}$/.test(given.schema)) return "The id of a schema is a number.";
  return null;
}

export async function show(main, params, signal) {
  const topic = topicHead(main, params, "write", (name) => `Write to ${name}`);
  if (!topic) return;
  const place = element("div", {}, reading());
  main.append(place);
  const { options = {} } = (await layoutOf(topic, signal)) ?? {};
  if (isRefused(topic)) {
    place.replaceChildren(hint("You may read this topic, and not write it."));
    return;
  }
  const hasSchemas = options.value_format === "registry";
  const keys = options.key_format === "registry" ? [["registry", "JSON, by the latest schema"], ...KEYS] : KEYS;
  const headers = element("div", { class: "wide", role: "group", "aria-label": "Headers" }, button("Add a header", (event) => { event.target.before(headerRow()); event.target.previousSibling.querySelector("input").focus(); }));
  const value = element("textarea", { name: "value", rows: 8, spellcheck: "false" });
  const warning = element("p", { class: "warning", role: "alert", hidden: true });
  const result = element("div", { role: "status" });
  const form = element("form", {},
    element("div", { class: "fields write" },
      field("Key", { name: "key", value: params.get("key") ?? "" }), choice("The key is", "keyForm", keys, keys[0][0]),
      choice("The value is", "form", hasSchemas ? [...BY_SCHEMA, ...VALUES] : VALUES, hasSchemas ? "latest" : "json"),
      hasSchemas && field("Id of the schema", { name: "schema", inputmode: "numeric", placeholder: "where one is chosen" }),
      element("label", { class: "wide" }, "Value", value),
      headers,
      (hasSchemas || options.has_typed_keys || options.value_format !== "auto" || options.envelope !== "none") && element("div", { class: "wide" }, check("Write what readers of the topic can not read, too", "raw", false))),
    warning,
    element("p", { class: "row" }, submit("Write"), element("span", { class: "hint" }, `A record of ${topic} in Kafka.`)));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const data = new FormData(form);
    const given = Object.fromEntries(data);
    const [names, values] = [data.getAll("headerName"), data.getAll("headerValue")];
    const fault = faultOf(given);
    warning.replaceChildren(fault ?? "");
    warning.hidden = !fault;
    if (fault) return;
    guarded(result, async () => {
      const position = await write(topic, given, names.map((name, index) => ({ name, value: values[index] })).filter(({ name }) => name));
      const link = given.keyForm === "text" ? element("a", { href: `#/key?${new URLSearchParams({ topic, key: given.key })}` }, "Read the key") : "";
      result.replaceChildren(element("p", {}, `Written: position ${position} `, link));
      say(`Written: position ${position}`);
    });
  });
  place.replaceChildren(form, result);
}
