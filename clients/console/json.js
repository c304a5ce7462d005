/** JSON with the digits that it was written with, and as coloured text. */

import { element, hint } from "./dom.js";
import { count, hexdump } from "./format.js";

const SHOWN_CHARACTERS = 200_000;

/** A number that JavaScript would show with other digits, such as 1.50 or an integer of 18 digits. */
export class Digits {
  constructor(source) {
    this.source = source;
  }
  valueOf() {
    return Number(this.source);
  }
}

export function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source && String(value) !== context.source ? new Digits(context.source) : value,
  );
}

export function write(value, indent = "  ", at = "") {
  if (value instanceof Digits) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "";
  const inner = at + indent;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((each) => write(each, indent, inner))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${write(each, indent, inner)}`);
  if (!parts.length) return open + close;
  return indent ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${at}${close}` : `${open}${parts.join(", ")}${close}`;
}

/** The value of a record in a document; one that is left in Kafka has only a size. */
export function valueText(record, form = (value) => inline(value)) {
  if (record.value_format === "left-in-kafka") return `left in Kafka: ${count(record.value_bytes)} bytes`;
  return form(record.value ?? null);
}

export const inline = (value) => write(value, "");
export const same = (one, other) => inline(one) === inline(other);

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d[\d.eE+-]*/g;

/** A text of JSON, or any other, as an element; a very long one is cut. */
export function shown(text, label = "Value") {
  const cut = text.length > SHOWN_CHARACTERS;
  const code = element("code");
  let end = 0;
  const kept = cut ? text.slice(0, SHOWN_CHARACTERS) : text;
  // Colours cost an element a token: a long text does without them.
  for (const found of kept.length > 40_000 ? [] : kept.matchAll(TOKEN)) {
    code.append(kept.slice(end, found.index));
    const kind = found[2] !== undefined ? "name" : found[1] ? "string" : found[3] ? "word" : "number";
    code.append(element("span", { class: `json-${kind}` }, found[1] ?? found[0]), found[2] ?? "");
    end = found.index + found[0].length;
  }
  code.append(kept.slice(end));
  return element(
    "div",
    {},
    element("pre", { class: "value", tabindex: "0", role: "region", "aria-label": label }, code),
    cut && hint(`The first ${SHOWN_CHARACTERS} of ${text.length} characters.`),
  );
}

/** An answer's body as text: JSON indented, bytes as their hex digits. */
export function pretty({ text, bytes }, mediaType) {
  if (mediaType === "application/octet-stream") return hexdump(bytes);
  if (!mediaType?.includes("json")) return text;
  try {
    return write(parse(text));
  } catch {
    return text;
  }
}
