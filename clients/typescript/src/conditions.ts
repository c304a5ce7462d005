/**
 * Conditions on fields, as `find` takes them and as the API spells them.
 *
 * A value alone is equality. A text that would be read as a range, a prefix or a JSON string is sent as a JSON string,
 * so equality is equality, whatever the text has in it.
 */

import { InvalidArgument } from "./problems.ts";

/** A value of a field: of `time` a Date, ms since 1970, or ISO 8601. */
export type FieldValue = string | number | bigint | boolean | Date;
export type Wanted = FieldValue | FieldCondition;
/** By the names of fields, as in `customer.country`. */
export type Conditions = { readonly [field: string]: Wanted };

/** What a field's value must be, as the API spells it: several texts must all be met. */
export class FieldCondition {
  readonly texts: readonly string[];

  constructor(texts: readonly string[]) {
    this.texts = texts;
  }
}

/**
 * Values from `low` on up to `high`, both included; or below `below`. What is undefined is open; `between()`: any.
 *
 * Throws InvalidArgument, also for a text that no range can have as its bound.
 */
export function between(low?: FieldValue, high?: FieldValue, end: { readonly below?: FieldValue } = {}): FieldCondition {
  const { below } = end;
  if (high !== undefined && below !== undefined) {
    throw new InvalidArgument("high and below exclude each other: one is in the range, the other is not");
  }
  const [first, last] = [low, below ?? high].map((each) => (each === undefined ? "" : textOf(each))) as [string, string];
  if (/\.\.|^["<]/.test(first) || /\.\.|^["<]/.test(last)) {
    throw new InvalidArgument("a text with .. in it, or that begins with a quote or with <, bounds no range");
  }
  return new FieldCondition([`${first}..${below === undefined ? "" : "<"}${last}`]);
}

/** Texts that begin with this. Throws InvalidArgument for what no prefix can be. */
export function startingWith(prefix: string): FieldCondition {
  if (/\.\.|^"/.test(prefix)) throw new InvalidArgument("a text with .. in it, or that begins with a quote, is no prefix");
  return new FieldCondition([`${prefix}*`]);
}

/** Every one of these, such as several of a record's tags. */
export function allOf(...wanted: readonly [Wanted, ...Wanted[]]): FieldCondition {
  if (!wanted.length) throw new InvalidArgument("allOf needs a condition");
  return new FieldCondition(wanted.flatMap(textsOf));
}

/** The conditions as parameters: with its dot a name is that of a field, whatever parameters there are. */
export function conditionsQuery(conditions: Conditions): { [name: string]: readonly string[] } {
  return Object.fromEntries(Object.entries(conditions).map(([name, wanted]) => [`.${name}`, textsOf(wanted)]));
}

function textsOf(wanted: Wanted): readonly string[] {
  if (wanted instanceof FieldCondition) return wanted.texts;
  const text = textOf(wanted);
  return [/^$|^"|\*$|\.\./.test(text) ? JSON.stringify(text) : text];
}

function textOf(value: FieldValue): string {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value.toISOString();
  if (typeof value === "number" && Number.isFinite(value)) return String(value);
  if (typeof value === "string" || typeof value === "boolean" || typeof value === "bigint") return String(value);
  throw new InvalidArgument(`${String(value)} is not a value of a field: allOf(...) is for several conditions`);
}
