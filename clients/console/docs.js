/** The reference of the HTTP API, from the OpenAPI document beside this page. */

import { element, table } from "./dom.js";

const spec = await (await fetch("openapi.json")).json();
const main = document.getElementById("main");

const resolve = (node) => (node?.$ref ? node.$ref.slice(2).split("/").reduce((at, part) => at[part], spec) : node);
const nameOf = (node) => node?.$ref?.split("/").at(-1);

/** A schema in a few words. */
function kindOf(schema) {
  if (schema.$ref) return nameOf(schema);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  const either = schema.oneOf ?? schema.anyOf;
  if (either) return either.map(kindOf).join(" | ");
  if (schema.type === "array") return `array of ${kindOf(schema.items ?? {})}`;
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type ?? (schema.properties ? "object" : "any JSON");
  const bounds = [
    schema.minimum !== undefined && `from ${schema.minimum}`,
    schema.maximum !== undefined && `to ${schema.maximum}`,
    schema.maxLength !== undefined && `${schema.maxLength} characters at most`,
    schema.maxItems !== undefined && `${schema.maxItems} at most`,
    schema.default !== undefined && schema.default !== "" && `default ${JSON.stringify(schema.default)}`,
  ].filter(Boolean);
  return bounds.length ? `${type} (${bounds.join(", ")})` : type;
}

/** The fields of a schema as a list that opens; a schema within itself is named alone. */
function fieldsOf(schema, within = []) {
  const name = nameOf(schema);
  if (name && within.includes(name)) return null;
  const path = name ? [...within, name] : within;
  const found = resolve(schema);
  if (found.type === "array" || found.items) return fieldsOf(found.items ?? {}, path);
  const either = found.oneOf ?? found.anyOf;
  if (either) return either.map((each) => fieldsOf(each, path)).filter(Boolean);
  if (!found.properties) return null;
  const items = Object.entries(found.properties).map(([field, inner]) => {
    const below = fieldsOf(inner, path);
    const isDeep = below && (!Array.isArray(below) || below.length > 0);
    return element("li", {},
      element("code", {}, field), " ", element("span", { class: "kind" }, kindOf(inner), found.required?.includes(field) ? "" : ", optional"),
      inner.description && ` – ${inner.description}`,
      isDeep && element("details", {}, element("summary", {}, `fields of ${field}`), below));
  });
  return element("ul", { class: "schema" }, items);
}

function parametersOf(parameters, name) {
  if (!parameters.length) return null;
  return [element("h4", {}, "Parameters"), table(`Parameters of ${name}`, ["Name", "In", "Type", "Meaning"], parameters.map((each) => [
    element("code", {}, each.name), each.in, element("span", { class: "kind" }, kindOf(each.schema ?? {}), each.required ? "" : ", optional"), each.description ?? "",
  ]))];
}

function contentOf(content) {
  return Object.entries(content ?? {}).map(([type, { schema = {} }]) => element("details", {}, element("summary", {}, element("code", {}, type), " ", element("span", { class: "kind" }, kindOf(schema))), fieldsOf(schema) ?? element("p", { class: "hint" }, kindOf(resolve(schema)))));
}

function answersOf(responses) {
  const good = Object.entries(responses).filter(([status]) => status < "400");
  const bad = Object.keys(responses).filter((status) => status >= "400");
  return [
    element("h4", {}, "Answers"),
    good.map(([status, each]) => {
      const found = resolve(each);
      const headers = Object.entries(found.headers ?? {});
      return element("div", {},
        element("p", {}, element("strong", {}, status), ` ${found.description}`),
        contentOf(found.content),
        headers.length > 0 && element("details", {}, element("summary", {}, `${headers.length} headers`), element("ul", { class: "schema" }, headers.map(([name, header]) => element("li", {}, element("code", {}, name), ` – ${resolve(header).description ?? ""}`)))));
    }),
    bad.length > 0 && element("p", { class: "hint" }, `Problems: ${bad.join(", ")}. `, element("code", {}, "type"), " of the problem document says which."),
  ];
}

function operationOf({ path, method, described }) {
  return element("section", { class: "operation", id: described.operationId, "aria-labelledby": `${described.operationId}-name` },
    element("h3", { id: `${described.operationId}-name` }, element("span", { class: `verb ${method}` }, method.toUpperCase()), path),
    element("p", {}, described.summary, " ", element("a", { href: `index.html#/try?operation=${described.operationId}` }, "Try it")),
    parametersOf(described.parameters ?? [], described.operationId),
    described.requestBody && [element("h4", {}, "Body"), contentOf(described.requestBody.content)],
    answersOf(described.responses));
}

const operations = Object.entries(spec.paths).flatMap(([path, methods]) => Object.entries(methods).filter(([method]) => method !== "head").map(([method, described]) => ({ path, method, described, group: described.tags[0] })));

/** Show the routes that the filter names, in the margin and on the page. */
function contents() {
  const wanted = document.getElementById("filter").value.toLowerCase();
  const isWanted = ({ path, method, described }) => `${method} ${path} ${described.summary}`.toLowerCase().includes(wanted);
  for (const each of operations) document.getElementById(each.described.operationId).hidden = !isWanted(each);
  document.getElementById("contents").replaceChildren(...spec.tags.flatMap(({ name: group }) => {
    const found = operations.filter((each) => each.group === group && isWanted(each));
    return found.length ? [element("h2", {}, group), element("ul", {}, found.map(({ path, method, described }) => element("li", {}, element("a", { href: `#${described.operationId}` }, element("span", { class: `verb ${method}` }, method.toUpperCase()), path))))] : [];
  }));
}

document.getElementById("version").textContent = spec.info.version;
main.replaceChildren(element("h1", {}, "HTTP API"), element("p", {}, spec.info.description), ...spec.tags.flatMap(({ name: group }) => [element("h2", {}, group), ...operations.filter((each) => each.group === group).map(operationOf)]));
document.getElementById("filter").addEventListener("input", contents);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
contents();
// What the address names is there only now.
if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
