/** A topic as one client, or one of its sessions, reads and writes it. */

import { InvalidArgument } from "./problems.ts";
import type { Ledger } from "./ledger.ts";
import type { Loads } from "./parsing.ts";
import type { Transport } from "./transport.ts";
import type { Moment, Query } from "./wire.ts";
import { encodeMoment } from "./wire.ts";

/** A client, or one of its sessions. `ledger`: the writes that reads must wait for. */
export interface Context {
  readonly transport: Transport;
  readonly loads: Loads;
  readonly idempotentWrites: boolean;
  readonly ledger?: Ledger;
}

/** Which answers a reader accepts, and how much of them. */
export interface Terms {
  /** Of JSON objects these fields alone. */
  readonly fields?: readonly string[];
  /** An older state is Unavailable. */
  readonly maxAgeMs?: number;
  /** Also read lanes that are being built. */
  readonly partial?: boolean;
  /** The records' headers, which a read of one key else leaves out. */
  readonly headers?: boolean;
  /** Of a database's topic the change events, not their rows. */
  readonly event?: boolean;
}

export interface TopicScope {
  readonly name: string;
  readonly context: Context;
  readonly terms: Terms & { readonly asOf?: Moment };
}

/** The parameters that all reads of records take. */
export function termsQuery({ terms }: TopicScope): Query {
  return {
    ...(terms.fields?.length ? { fields: terms.fields.join(",") } : {}),
    ...(terms.maxAgeMs === undefined ? {} : { max_age_ms: String(Math.round(terms.maxAgeMs)) }),
    ...(terms.event ? { event: "true" } : {}),
    ...(terms.partial ? { partial: "true" } : {}),
  };
}

/** `termsQuery` with the moment. */
export function termsQueryAsOf(topic: TopicScope): Query {
  const { asOf } = topic.terms;
  return { ...termsQuery(topic), ...(asOf === undefined ? {} : { as_of: encodeMoment(asOf) }) };
}

/** Throw InvalidArgument if the terms are of an earlier moment, for what has no such thing. */
export function requireNow(topic: TopicScope, what: string): void {
  if (topic.terms.asOf !== undefined) throw new InvalidArgument(`${what} has no \`at\`: it is about the latest state`);
}
