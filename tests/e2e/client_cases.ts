/**
 * The TypeScript client's runner of client_cases.json; tests/support/client_cases.py is the Python client's.
 *
 * Reads {url, prefix, cases} from the standard input, and writes what each step of each case answered.
 */

import { readFileSync } from "node:fs";
import { Client, KeylaneError, Position, ProblemError, allOf, between, startingWith } from "../../clients/typescript/src/index.ts";

const VIEWS_MS = 120_000;
const camel = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
const bytesOf = (text: string) => new Uint8Array(Buffer.from(text, "base64"));

class Run {
  api: any;
  key: string;
  steps: any[];
  saved: { [name: string]: any } = {};

  constructor(client: any, key: string, one: any) {
    this.api = one.of === "client" ? client : client.session();
    this.key = key;
    this.steps = one.steps;
  }

  async results() {
    const results: any[] = [];
    for (const step of this.steps) results.push(await this.result(step));
    const saved = Object.fromEntries(Object.entries(this.saved).map(([name, each]) => [name, plain(each)]));
    return { key: this.key, results, saved };
  }

  async result(step: any) {
    try {
      return plain(await this.answer(step));
    } catch (error) {
      if (error instanceof KeylaneError) return plainError(error);
      throw error;
    }
  }

  async answer(step: any) {
    const end = Date.now() + VIEWS_MS;
    let found: any;
    for (;;) {
      found = await this.call(step);
      if (step.until === undefined || found.length >= step.until) break;
      if (Date.now() > end) throw new Error(`${JSON.stringify(step)} gives ${JSON.stringify(found)}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    if (step.save) this.saved[step.save] = found;
    return found;
  }

  async call(step: any) {
    const args = (step.args ?? []).map((each: any) => this.given(each));
    const options = Object.fromEntries(
      Object.entries(step.options ?? {}).map(([name, each]) => [camel(name), this.given(each)]),
    );
    if (step.options) args.push(options);
    let found = this.target(step)[camel(step.call)](...args);
    for (const [name, ...given] of step.chain ?? []) {
      found = found[camel(name)](...given.map((each: any) => this.given(each)));
    }
    if (step.end && step.end !== "records") return found[camel(step.end)]();
    return Symbol.asyncIterator in found ? this.items(found, step) : found;
  }

  async items(found: AsyncIterable<any>, step: any) {
    const items: any[] = [];
    for await (const item of found) {
      items.push(item);
      const after = step.then?.[items.length - 1];
      if (after) await this.answer(after);
      if (items.length === step.take) break;
    }
    return items;
  }

  target(step: any) {
    if (step.view) return this.api.view(step.view);
    const topic = this.api.topic(step.topic);
    if (step.at) return topic.at(this.given(step.at));
    return topic.reading(
      Object.fromEntries(Object.entries(step.terms ?? {}).map(([name, each]) => [camel(name), each])),
    );
  }

  given(given: any): any {
    if (typeof given === "string") return given.replaceAll("{key}", this.key);
    if (Array.isArray(given)) return given.map((each) => this.given(each));
    if (typeof given !== "object" || given === null) return given;
    for (const [name, make] of Object.entries(this.special())) {
      if (!(name in given)) continue;
      const { [name]: own, ...rest } = given;
      return make(this.given(own), rest);
    }
    return Object.fromEntries(Object.entries(given).map(([name, each]) => [name, this.given(each)]));
  }

  special(): { [name: string]: (given: any, rest: any) => any } {
    return {
      $: (path) => this.reference(path),
      later: (path) => new Position(this.reference(path).partition, this.reference(path).offset + 1_000_000),
      bytes: bytesOf,
      key_bytes: bytesOf,
      fields_of_key: (fields) => fields,
      position: Position.parse,
      moment: (text) => new Date(text),
      nan: () => NaN,
      between: ([low, high], rest) => between(low, high, rest),
      starting_with: startingWith,
      all_of: (wanted) => allOf(...(wanted as [string])),
    };
  }

  reference(path: string) {
    const [name, ...members] = path.split(".");
    return members.reduce((found, member) => found[camel(member)], this.saved[name!]);
  }
}

/** What a client returned as JSON, as client_cases.py does. */
function plain(found: any): any {
  if (found === undefined) return null;
  if (found instanceof Uint8Array) return { bytes: Buffer.from(found).toString("base64") };
  if (Array.isArray(found)) return found.map(plain);
  if (found instanceof Map) return [...found].map(([key, each]) => [plain(key), plain(each)]);
  return typeof found === "object" && found !== null ? plainAnswer(found) : found;
}

function plainAnswer(found: any): any {
  const fresh = found.watermark !== undefined && found.ageMs !== undefined;
  if (found.absent) return { kind: "absent", key: plain(found.key) };
  if (found.absent === false) {
    return {
      kind: "record",
      key: plain(found.key),
      value: plainValue(found.value),
      value_format: found.valueFormat,
      position: String(found.position),
      fresh,
      etag: found.etag.includes("@"),
      headers: found.headers?.map((each: any) => [each.name, plain(each.value)]) ?? null,
    };
  }
  if (found.isWritten) {
    const position = found.position ? String(found.position) : null;
    return { kind: "written", position, queued: found.queuedId !== undefined, replayed: found.isReplayed };
  }
  if (found.isWritten === false) {
    const [code, retriable] = [found.code ?? null, found.isRetriable];
    return { kind: "failed", code, retriable, uncertain: found.isUncertain, superseded: found.isSuperseded };
  }
  if ("isDeleted" in found) {
    const [value, value_format] = [plainValue(found.value), found.valueFormat];
    return { kind: "entry", position: String(found.position), value, value_format, deleted: found.isDeleted, fresh };
  }
  if ("scanned" in found) {
    const isFresh = found.watermarks.size > 0 && found.ageMs !== undefined;
    return { records: plain([...found.records]), has_next: found.next !== undefined, fresh: isFresh };
  }
  if ("isFinal" in found) {
    const has_bounds = found.startMs !== undefined && found.endMs !== undefined;
    return { kind: "window", key: plain(found.key), has_bounds, final: found.isFinal, values: found.values };
  }
  throw new TypeError(JSON.stringify(found));
}

function plainValue(value: any): any {
  return value instanceof Uint8Array ? plain(value) : (value ?? null);
}

function plainError(error: KeylaneError): any {
  const kinds: string[] = [];
  for (let each = Object.getPrototypeOf(error); each !== Error.prototype; each = Object.getPrototypeOf(each)) {
    kinds.push(each.name);
  }
  if (!(error instanceof ProblemError)) return { error: kinds };
  return { error: kinds, status: error.status, type: error.type, parameter: error.parameter ?? null };
}

const { url, prefix, cases } = JSON.parse(readFileSync(0, "utf8"));
const client = new Client(url);
const answers: any[] = [];
for (const [index, one] of cases.entries()) answers.push(await new Run(client, `${prefix}-${index}`, one).results());
process.stdout.write(JSON.stringify(answers));
