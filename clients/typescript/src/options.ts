/** A client's options: retries, timeouts, credentials. */

import type { KeylaneError } from "./errors.ts";
import { ProblemError } from "./errors.ts";
import { RateLimited, Unavailable, Unreachable } from "./problems.ts";

const FIRST_BACKOFF_S = 0.1;

/**
 * Up to `attempts` of each request that may be repeated: reads, and writes with an idempotency key.
 *
 * A wait is what `Retry-After` says, else random and growing up to `maxBackoffS`. An answer that asks for more than
 * `maxRetryAfterS` is an error at once: its `retryAfterS` says how long to wait.
 */
export class RetryPolicy {
  readonly attempts: number;
  readonly maxBackoffS: number;
  readonly maxRetryAfterS: number;

  constructor(options: { attempts?: number; maxBackoffS?: number; maxRetryAfterS?: number } = {}) {
    this.attempts = options.attempts ?? 4;
    this.maxBackoffS = options.maxBackoffS ?? 5;
    this.maxRetryAfterS = options.maxRetryAfterS ?? 30;
  }

  /** Whether the same request may succeed soon; one that may have been done is not done again. */
  isTransient(error: unknown): error is KeylaneError {
    if (error instanceof ProblemError && error.isUncertain) return false;
    if (error instanceof RateLimited || error instanceof Unavailable) {
      return (error.retryAfterS ?? 0) <= this.maxRetryAfterS;
    }
    return error instanceof Unreachable;
  }

  /** How long to wait after this attempt, counted from 1. */
  waitS(error: KeylaneError, attempt: number): number {
    if (error instanceof ProblemError && error.retryAfterS !== undefined) return error.retryAfterS;
    return Math.random() * Math.min(this.maxBackoffS, FIRST_BACKOFF_S * 2 ** (attempt - 1));
  }
}

/** Each request is sent once. */
export const NO_RETRIES = new RetryPolicy({ attempts: 1 });

/** What proves to the service who asks: headers, asked for before each attempt of a request. */
export interface Credentials {
  headers(): HeadersInit | Promise<HeadersInit>;
}

/** A key of API Gateway, or a token of `keylane serve`, in `x-api-key`. */
export class ApiKey implements Credentials {
  readonly #key: string;

  constructor(key: string) {
    this.#key = key;
  }

  headers(): HeadersInit {
    return { "x-api-key": this.#key };
  }
}

/** A bearer token, or a function that returns one: it is called for each request, so it may renew it. */
export class Bearer implements Credentials {
  readonly #token: string | (() => string | Promise<string>);

  constructor(token: string | (() => string | Promise<string>)) {
    this.#token = token;
  }

  async headers(): Promise<HeadersInit> {
    const token = typeof this.#token === "string" ? this.#token : await this.#token();
    return { Authorization: `Bearer ${token}` };
  }
}

export interface ClientOptions {
  readonly auth?: Credentials;
  /** For one answer, 35 by default: a read may wait for 20 s, and API Gateway answers within 29 s. */
  readonly timeoutS?: number;
  readonly retries?: RetryPolicy;
  /** Each write has an idempotency key of its own, so it can be sent again. The service needs a store for them. */
  readonly idempotentWrites?: boolean;
  /** Parses the JSON of values, as `JSON.parse` does. With another one no digit of a number is lost. */
  readonly loads?: (text: string) => unknown;
  /** Sends a request: for logs, traces and tests. By default `fetch`. */
  readonly fetch?: (url: string, init: RequestInit) => Promise<Response>;
}
