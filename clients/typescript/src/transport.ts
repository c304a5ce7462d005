/** Sends requests by `fetch`, and repeats those that may be repeated. Here alone are its errors known. */

import { encodeUtf8 } from "./bytes.ts";
import type { ProblemDocument, ProblemError } from "./errors.ts";
import { KeylaneError, problemType } from "./errors.ts";
import type { ClientOptions } from "./options.ts";
import { RetryPolicy } from "./options.ts";
import {
  ERRORS_BY_STATUS,
  ERRORS_BY_TYPE,
  InvalidAnswer,
  InvalidArgument,
  RateLimited,
  RequestRefused,
  ServiceFailed,
  Unreachable,
} from "./problems.ts";
import type { Query } from "./wire.ts";
import { encodeText } from "./wire.ts";

/** The first type asks for Keylane's own documents where the service has others for clients of REST Proxy. */
const ACCEPT = "application/vnd.keylane+json, application/json, */*;q=0.5";
const SHOWN = 300;
const [LIMITED, BAD_GATEWAY] = [429, 502];
/** Whether a status is of a proxy that gets no answer from the service; the last ones are Cloudflare's. */
const isOfProxy = (status: number) => [BAD_GATEWAY, 503, 504].includes(status) || (status >= 520 && status <= 530);

/** One request. `path` is percent-encoded, and relative to the API's URL. */
export interface ApiRequest {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly query?: Query;
  readonly headers?: { readonly [name: string]: string };
  readonly body?: Uint8Array | string;
  /** False: sent twice it may do more than it does once. */
  readonly isRepeatable?: boolean;
  /** Statuses besides 2xx that are answers and not errors. */
  readonly alsoAnswers?: readonly number[];
  /** Ends the request; its reason is then what is thrown. */
  readonly signal?: AbortSignal | undefined;
}

export interface ApiResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

/** The API at one URL. */
export class Transport {
  readonly retries: RetryPolicy;
  readonly #url: string;
  readonly #options: ClientOptions;
  readonly #timeoutS: number;

  /** Throws InvalidArgument for what is not the URL of an API. */
  constructor(url: string, options: ClientOptions) {
    const parsed = URL.canParse(url) ? new URL(url) : undefined;
    if (!parsed || !/^https?:$/.test(parsed.protocol) || parsed.search || parsed.hash || parsed.username) {
      throw new InvalidArgument(`"${url}" is not the URL of an API: write http or https, a host, and no query`);
    }
    this.#url = url.replace(/\/+$/, "");
    this.#options = options;
    this.#timeoutS = options.timeoutS ?? 35;
    this.retries = options.retries ?? new RetryPolicy();
  }

  /** Return the answer. Throws the error that it describes, if it is one, after the attempts of `retries`. */
  async send(request: ApiRequest): Promise<ApiResponse> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#attempt(request);
      } catch (error) {
        const isLast = attempt >= this.retries.attempts || request.isRepeatable === false;
        if (isLast || !this.retries.isTransient(error)) throw error;
        await pause(this.retries.waitS(error, attempt), request.signal);
      }
    }
  }

  /** Give the bytes of a stream of this media type as they come. Throws Unreachable after `silenceS` without one. */
  async *listen(request: ApiRequest, type: string, silenceS: number): AsyncGenerator<Uint8Array, void> {
    const ended = new AbortController();
    const silent = new Unreachable(`the stream of ${this.#url} was silent for ${silenceS} s`);
    let timer = setTimeout(() => ended.abort(silent), silenceS * 1000);
    const signal = anyOf(ended.signal, request.signal);
    try {
      const response = await this.#fetch(request, signal);
      if (!response.ok || !response.headers.get("content-type")?.startsWith(type)) {
        check(request, await this.#read(response, signal));
        throw new InvalidAnswer(`the answer is not a stream of ${type}`);
      }
      const reader = response.body!.getReader();
      for (;;) {
        const { done, value } = await this.#translated(signal, () => reader.read());
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => ended.abort(silent), silenceS * 1000);
        yield value;
      }
    } finally {
      clearTimeout(timer);
      ended.abort();
    }
  }

  async #attempt(request: ApiRequest): Promise<ApiResponse> {
    const late = new AbortController();
    const reason = new Unreachable(`${this.#url} did not answer within ${this.#timeoutS} s`);
    const timer = setTimeout(() => late.abort(reason), this.#timeoutS * 1000);
    const signal = anyOf(late.signal, request.signal);
    try {
      return check(request, await this.#read(await this.#fetch(request, signal), signal));
    } finally {
      clearTimeout(timer);
    }
  }

  async #fetch(request: ApiRequest, signal: AbortSignal): Promise<Response> {
    const init: RequestInit = {
      method: request.method,
      headers: await this.#headers(request),
      // Another origin must not get the credentials.
      redirect: "manual",
      cache: "no-store",
      signal,
    };
    if (request.body !== undefined) init.body = request.body as BodyInit;
    const send = this.#options.fetch ?? fetch;
    return this.#translated(signal, () => send(this.#url + request.path + queryText(request.query), init));
  }

  async #headers(request: ApiRequest): Promise<Headers> {
    try {
      const headers = new Headers({ Accept: ACCEPT, ...request.headers });
      new Headers(await this.#options.auth?.headers()).forEach((value, name) => headers.set(name, value));
      return headers;
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      throw new InvalidArgument(`this is not the value of a header: ${error.message}`, { cause: error });
    }
  }

  async #read(response: Response, signal: AbortSignal): Promise<ApiResponse> {
    const body = new Uint8Array(await this.#translated(signal, () => response.arrayBuffer()));
    return { status: response.status, headers: response.headers, body };
  }

  /** Throw Unreachable for a broken connection, and the signal's own reason where that ended it. */
  async #translated<T>(signal: AbortSignal, send: () => Promise<T>): Promise<T> {
    try {
      return await send();
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof KeylaneError) throw error;
      const cause = (error as Error).cause;
      const why = cause instanceof Error && cause.message ? cause.message : (error as Error).message;
      throw new Unreachable(`${this.#url} cannot be reached (${why}): is it up, and in browsers, is this page allowed?`, {
        cause: error,
      });
    }
  }
}

function anyOf(own: AbortSignal, given: AbortSignal | undefined): AbortSignal {
  return given ? AbortSignal.any([own, given]) : own;
}

/** Wait. Throws the signal's reason once it is aborted. */
export async function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, seconds * 1000);
    signal?.addEventListener("abort", finish);
  });
  signal?.throwIfAborted();
}

function queryText(query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, given] of Object.entries(query)) {
    for (const value of typeof given === "string" ? [given] : given) {
      encodeText(name + value); // a query would ask for another text instead of one that UTF-8 does not have
      parameters.append(name, value);
    }
  }
  return parameters.size ? `?${parameters}` : "";
}

function check(request: ApiRequest, response: ApiResponse): ApiResponse {
  const { status } = response;
  if ((status >= 200 && status < 300) || request.alsoAnswers?.includes(status)) return response;
  throw errorOf(response);
}

/**
 * The error that a response describes, or what is there instead of a problem document.
 *
 * A proxy answers with its own pages while the service is restarted, for example: then what was asked may have been
 * done, or not.
 */
export function errorOf({ status, headers, body }: ApiResponse): KeylaneError {
  const text = new TextDecoder().decode(body);
  // An answer to HEAD has no body, and one that leads elsewhere shows a page of the web nothing.
  const isBare = !text && status >= 200 && status !== BAD_GATEWAY && !headers.has("location");
  const problem = isBare ? { message: "the answer has no body" } : parseProblem(text);
  if (problem?.type || problem?.message) return problemOf(status, problem, headers);
  return foreignError(status, headers, JSON.stringify(text.split(/\s+/).join(" ").slice(0, SHOWN)));
}

/** The error of a response that is not Keylane's. `text`: how its body begins. */
function foreignError(status: number, headers: Headers, text: string): KeylaneError {
  const location = headers.get("location");
  if (location || status < 200) {
    const where = location ? ` to ${JSON.stringify(location.slice(0, SHOWN))}` : "";
    return new InvalidAnswer(`status ${status}: the URL is redirected${where}: use that one`);
  }
  if (isOfProxy(status)) {
    return new Unreachable(`a proxy answers with status ${status}: is the service up behind it? It says: ${text}`);
  }
  if (status === LIMITED) {
    return new RateLimited(status, { detail: `a proxy's limit is reached; it says: ${text}` }, headers);
  }
  return new InvalidAnswer(
    `status ${status} without a problem document: is the URL that of Keylane? The body: ${text}`,
  );
}

/** The error that a problem document describes. */
export function problemOf(status: number, problem: ProblemDocument, headers?: Headers): ProblemError {
  const fallback = status >= 500 ? ServiceFailed : RequestRefused;
  const kind = ERRORS_BY_TYPE.get(problemType(problem)) ?? ERRORS_BY_STATUS.get(status) ?? fallback;
  return new kind(status, problem, headers);
}

function parseProblem(text: string): ProblemDocument | undefined {
  try {
    const found: unknown = JSON.parse(text);
    return typeof found === "object" && found !== null ? (found as ProblemDocument) : undefined;
  } catch {
    return undefined;
  }
}

/** JSON as a body. */
export const jsonBody = (document: unknown): Uint8Array => encodeUtf8(JSON.stringify(document));
