/** Fields of JSON values as columns of a table, as people choose them. */

import { button, element } from "./dom.js";
import { Digits } from "./json.js";

const OFFERED = 40;
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Digits);

/** A field by its path, such as `seat.car`; undefined where there is none. */
export function fieldAt(value, path) {
  if (!isObject(value)) return undefined;
  if (Object.hasOwn(value, path)) return value[path];
  const dot = path.indexOf(".");
  return dot < 0 ? undefined : fieldAt(value[path.slice(0, dot)], path.slice(dot + 1));
}

/** The fields of values by path, in the order of their first appearance; objects are named by their fields. */
export function fieldsOf(records) {
  const found = new Set();
  const add = (value, before) => {
    for (const [name, inner] of Object.entries(value)) {
      if (isObject(inner) && Object.keys(inner).length) add(inner, `${before}${name}.`);
      else found.add(before + name);
    }
  };
  for (const { value } of records) if (isObject(value)) add(value, "");
  return [...found].slice(0, OFFERED);
}

export const chosenIn = (params) => (params.get("fields") ?? "").split(",").map((each) => each.trim()).filter(Boolean);

/** Buttons of all fields; those that are pressed are columns. The address keeps them. */
export function fieldChooser(records, chosen, onChange) {
  const names = [...new Set([...chosen, ...fieldsOf(records)])];
  if (!names.length) return null;
  const toggle = (name) => {
    const next = chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
    const [path, query] = location.hash.split("?");
    const params = new URLSearchParams(query);
    if (next.length) params.set("fields", next.join(","));
    else params.delete("fields");
    history.replaceState(null, "", `${path}?${params}`);
    onChange(next, name);
  };
  const buttons = names.map((name) => element("li", {}, button(name, () => toggle(name), { class: "chip", "aria-pressed": String(chosen.includes(name)), data: { field: name } })));
  return element("div", { class: "chooser" }, element("span", { class: "hint", id: "columns-of" }, "Columns"), element("ul", { class: "picks", "aria-labelledby": "columns-of" }, buttons));
}
