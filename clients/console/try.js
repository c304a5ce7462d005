/** A form for each route, made from the OpenAPI document, with the command that does the same. */

import { curlOf } from "./curl.js";
import { badge, button, choice, element, facts, hint, reading, row, say, submit } from "./dom.js";
import { exampleOf } from "./examples.js";
import { pretty, shown } from "./json.js";
import { explain, guarded } from "./problem.js";
import { bearer, Failed, loadReference, problemFrom, send, settings, urlOf } from "./session.js";

const FIRST = "get_key";
const WRITES = "Write to Kafka";

function picker({ groups, operations }, chosen) {
  return element(
    "label",
    { class: "wide" },
    "Route",
    element(
      "select",
      { name: "operation", on: { change: (event) => { location.hash = `#/try?operation=${event.target.value}`; } } },
      groups.map((group, number) =>
        element("optgroup", { label: group }, operations.filter((each) => each.group === number).map((each) => element("option", { value: each.id, selected: each.id === chosen }, `${each.method} ${each.path}`)))),
    ),
  );
}

function hintOf({ name, in: place, description, schema = {} }) {
  // The document describes the path; this form encodes what is typed.
  if (place === "path" && name === "key") return "a key as text, or in base64 with key_format=base64";
  const bounds = [schema.minimum !== undefined && `from ${schema.minimum}`, schema.maximum !== undefined && `to ${schema.maximum}`, schema.default !== undefined && schema.default !== "" && `default ${schema.default}`].filter(Boolean);
  return bounds.length ? `${description} (${bounds.join(", ")})` : description;
}

function input(parameter, example) {
  const { name, schema = {}, required } = parameter;
  const label = `${name}${required ? "" : " (optional)"}`;
  const value = example[parameter.in]?.[name] ?? "";
  const options = schema.enum;
  const control = options
    ? choice(label, `${parameter.in}:${name}`, [["", "–"], ...options.map((each) => [String(each), String(each)])], value)
    : element("label", {}, label, element("input", { name: `${parameter.in}:${name}`, value, required, autocomplete: "off", spellcheck: "false", list: name === "topic" ? "topics" : null }));
  // Beside the label, not in it: the field's name stays short for those who hear it.
  const id = `hint-${parameter.in}-${name}`;
  control.querySelector("input, select").setAttribute("aria-describedby", id);
  return element("div", { class: "field" }, control, element("small", { id }, hintOf(parameter)));
}

/** The request that the form describes. */
function requestOf(form, operation) {
  const given = new FormData(form);
  const of = (place) => operation.parameters.filter((each) => each.in === place).map((each) => [each.name, given.get(`${place}:${each.name}`)]).filter(([, value]) => value);
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(given.get(`path:${name}`) ?? ""));
  const headers = Object.fromEntries(of("header"));
  const body = given.get("body") || undefined;
  if (body && given.get("type")) headers["Content-Type"] = given.get("type");
  return { method: operation.method, path, url: urlOf(path, Object.fromEntries(of("query"))), query: Object.fromEntries(of("query")), headers, body };
}

async function answerOf(response) {
  const type = response.headers.get("Content-Type") ?? "";
  const kind = response.status < 300 ? "good" : response.status < 400 ? "plain" : "bad";
  return [
    element("p", { class: "marks" }, badge(String(response.status), kind), element("span", { class: "hint" }, `${response.tookMs.toFixed(0)} ms, ${response.text.length} characters`)),
    response.status >= 400 && type.includes("problem") ? await explain(new Failed(problemFrom(response), response)) : "",
    element("details", {}, element("summary", {}, "Headers"), facts([...response.headers])),
    response.text ? shown(pretty(response, type), "Answer") : hint("The answer has no body."),
  ];
}

function bodyFields(operation, example) {
  if (!operation.bodies) return [];
  const types = operation.bodies.map((each) => (each === "*/*" ? "application/json" : each));
  return [
    choice("Content-Type", "type", types.map((each) => [each, each]), example.type ?? types[0]),
    element("label", { class: "wide" }, "Body", element("textarea", { name: "body", rows: 6, spellcheck: "false", value: example.body ?? "" })),
  ];
}

export async function show(main, params, signal) {
  main.append(element("h1", {}, "Try it"));
  const reference = await loadReference();
  const chosen = params.get("operation") ?? FIRST;
  const operation = reference.operations.find((each) => each.id === chosen);
  main.append(element("div", { class: "fields" }, picker(reference, chosen)), operation ? element("p", {}, operation.summary, " ", element("a", { href: `docs.html#${operation.id}` }, "Reference")) : "");
  if (!operation) throw new Failed({ title: "No such route", detail: `The API has no operation ${chosen}. Choose a route above.` });
  const loading = reading();
  main.append(loading);
  const example = await exampleOf(operation, signal);
  loading.remove();
  const command = element("code");
  const fields = [...operation.parameters.map((each) => input(each, example)), ...bodyFields(operation, example)];
  const copied = element("span", { role: "status", class: "hint" });
  const answer = element("section", { "aria-label": "Answer" });
  const form = element(
    "form",
    { class: "try" },
    fields.length > 0 && element("div", { class: "fields" }, fields),
    reference.groups[operation.group] === WRITES ? hint(badge("writes", "warn"), " This request writes to Kafka.") : "",
    row(submit("Send"), button("Copy as curl", copy), copied),
  );
  const rewrite = () => {
    const { apiKey } = settings();
    command.textContent = curlOf(requestOf(form, operation), { hasToken: Boolean(bearer()), hasApiKey: Boolean(apiKey) });
  };
  async function copy() {
    await navigator.clipboard.writeText(command.textContent).then(() => copied.replaceChildren("Copied"), () => copied.replaceChildren("The browser does not allow it: copy it from below"));
  }
  form.addEventListener("input", rewrite);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(answer, async () => {
      answer.replaceChildren(element("p", {}, "Sending"));
      const wanted = requestOf(form, operation);
      const response = await send(wanted.method, wanted.path, { ...wanted, signal });
      answer.replaceChildren(...(await answerOf(response)));
      say(`Answer ${response.status}`);
    });
  });
  rewrite();
  main.append(
    form,
    element("pre", { class: "value", tabindex: "0", role: "region", "aria-label": "The same with curl" }, command),
    answer,
  );
}
