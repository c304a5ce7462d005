/** A client, its sessions and views. */

import type { Window } from "./answers.ts";
import { Ledger } from "./ledger.ts";
import type { components } from "./openapi.ts";
import type { ClientOptions } from "./options.ts";
import type { TimeRange } from "./pages.ts";
import { limitQuery, readPages } from "./pages.ts";
import { parseWindow } from "./parsing.ts";
import type { Context } from "./scope.ts";
import { Topic } from "./topic.ts";
import { Transport } from "./transport.ts";
import type { Key, Query } from "./wire.ts";
import { keyBounds, keySegment, segment, timeBounds } from "./wire.ts";

export interface WindowsOptions extends TimeRange {
  /** Leave out windows that may still change. */
  readonly final?: boolean;
}

/** One view. A session's writes cannot be waited for here. */
export class View {
  readonly name: string;
  readonly #context: Context;

  constructor(name: string, context: Context) {
    this.name = name;
    this.#context = context;
  }

  /** Read a key's windows that begin from `start` on and before `stop`, oldest first. */
  windows(key: Key, options: WindowsOptions = {}): AsyncGenerator<Window, void> {
    const [name, query] = keySegment(key);
    return this.#windows(`keys/${name}`, query, options);
  }

  /** Read the windows of all keys, or of a prefix, by key and then by start. */
  scan(options: WindowsOptions & { readonly prefix?: Key } = {}): AsyncGenerator<Window, void> {
    return this.#windows("keys", keyBounds({ prefix: options.prefix }), options);
  }

  #windows(path: string, keys: Query, options: WindowsOptions): AsyncGenerator<Window, void> {
    const query = {
      ...keys,
      ...timeBounds(options.start, options.stop),
      ...limitQuery(options),
      ...(options.final ? { final: "true" } : {}),
    };
    return readPages<components["schemas"]["Window"], Window>(
      { method: "GET", path: `/views/${segment(this.name)}/${path}`, query },
      (page) => this.#context.transport.send(page),
      { name: "windows", parse: parseWindow, loads: this.#context.loads },
    );
  }
}

/** A client whose reads of topics always have its own writes. It keeps one position for each key that it wrote. */
export class Session {
  readonly #context: Context;

  constructor(context: Context) {
    this.#context = context;
  }

  /** A topic; nothing is sent. `V`: what its values are. */
  topic<V = unknown>(name: string): Topic<V> {
    return new Topic<V>(name, this.#context);
  }

  /** A view; nothing is sent. */
  view(name: string): View {
    return new View(name, this.#context);
  }
}

/** A client of the API at `url`. */
export class Client {
  readonly #context: Context;

  /** Throws InvalidArgument for what is not the URL of an API. Nothing is sent. */
  constructor(url: string, options: ClientOptions = {}) {
    this.#context = {
      transport: new Transport(url, options),
      loads: options.loads ?? JSON.parse,
      idempotentWrites: options.idempotentWrites ?? false,
    };
  }

  /** A topic; nothing is sent. `V`: what its values are. */
  topic<V = unknown>(name: string): Topic<V> {
    return new Topic<V>(name, this.#context);
  }

  /** A view; nothing is sent. */
  view(name: string): View {
    return new View(name, this.#context);
  }

  /** Begin a session: its reads always have its own writes. */
  session(): Session {
    return new Session({ ...this.#context, ledger: new Ledger() });
  }
}
