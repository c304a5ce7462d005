/** Requests to the API. Its address and the credentials that were entered are in this module's memory alone. */

import { parse } from "./json.js";
import { isReplaced, QUIET, renew, token } from "./login.js";

const own = new URL("..", document.baseURI).href.replace(/\/$/, "");
const connection = { base: own, token: "", apiKey: "" };
let reference = null;
let waiting = Promise.resolve();

export const settings = () => ({ ...connection });
export function connect(given) {
  Object.assign(connection, given, { base: (given.base || own).replace(/\/+$/, "") });
}

/** A request that failed: `problem` is the problem document, or one that this page made. */
export class Failed extends Error {
  constructor(problem, response = null) {
    super(problem.detail ?? problem.title);
    this.problem = problem;
    this.response = response;
    this.name = problem.type?.split(":").pop() ?? "";
  }
}

/** Operations and problem types, as the build wrote them beside this page. */
export async function loadReference() {
  if (!reference) {
    reference = await (await fetch("reference.json")).json();
    // What most have is left out there, and operations name their parameters by number.
    const parameters = reference.parameters.map((each) => ({ in: "query", ...each }));
    reference.operations = reference.operations.map((each) => ({ method: "GET", group: 0, ...each, parameters: (each.parameters ?? []).map((number) => parameters[number]) }));
  }
  return reference;
}

export const pathOf = (...parts) => "/" + parts.map(encodeURIComponent).join("/");
/** Key paths name two fixed segments, so that callers do not repeat them. */
export const keyPath = (topic, key, ...rest) => pathOf("topics", topic, "keys", key, ...rest);

/** A login is for the API that this page belongs to, and for no other one. */
export const bearer = () => connection.token || (connection.base === own ? token() : "");

export async function credentials() {
  const headers = {};
  if (!connection.token) await renew();
  if (bearer()) headers.Authorization = `Bearer ${bearer()}`;
  if (connection.apiKey) headers["x-api-key"] = connection.apiKey;
  return headers;
}

/** `query`: an object, or pairs where a name may come twice. */
export function urlOf(path, query = {}) {
  const given = (Array.isArray(query) ? query : Object.entries(query)).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  const text = given.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join("&");
  return connection.base + path + (text ? `?${text}` : "");
}

const noAnswer = () => new Failed({ type: "page:no-answer", title: "No answer came", detail: `${connection.base} did not answer, or the browser does not allow this page to ask it.` });

/** As fetch, with the credentials; once more with another token, where the service has refused that of a login. */
export async function ask(url, { headers, ...options } = {}) {
  const once = async () => {
    const given = await credentials();
    return [bearer(), await fetch(url, { ...options, headers: { ...given, ...headers }, ...QUIET })];
  };
  const [sent, response] = await once();
  if (response.status !== 401 || connection.token || !(await isReplaced(sent))) return response;
  return (await once())[1];
}

/** Send a request; resolves to its status, headers and text whatever the status. Raises Failed without an answer. */
export async function send(method, path, { query, headers = {}, body, signal } = {}) {
  const started = performance.now();
  // The first type asks for Keylane's own documents, also where the service has others for clients of REST Proxy.
  const options = { method, body, signal, headers: { Accept: "application/vnd.keylane+json, */*", ...headers } };
  const asked = () => ask(urlOf(path, query), options);
  let response, bytes;
  try {
    // A browser drops what is under way when the machine's network changes. A read can be sent again.
    response = await asked().catch((error) => (method === "GET" && error.name !== "AbortError" ? asked() : Promise.reject(error)));
    bytes = new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw noAnswer();
  }
  const text = new TextDecoder().decode(bytes);
  return { status: response.status, headers: response.headers, text, bytes, tookMs: performance.now() - started };
}

export function problemFrom(response) {
  try {
    const found = parse(response.text);
    if (found.title) return { ...found, status: response.status };
    return { title: found.message ?? `Status ${response.status}`, status: response.status };
  } catch {
    return { title: `Status ${response.status}`, detail: response.text.slice(0, 300), status: response.status };
  }
}

/** GET; resolves to the answer for 200 and 304. Raises Failed for all others. */
export async function get(path, options = {}) {
  const response = await send("GET", path, options);
  if (response.status !== 200 && response.status !== 304) throw new Failed(problemFrom(response), response);
  return response;
}

/** GET whose body is read as it comes; resolves to its reader. Raises Failed. */
export async function readerOf(path) {
  const response = await ask(urlOf(path)).catch(() => Promise.reject(noAnswer()));
  if (response.ok) return response.body.getReader();
  throw new Failed(problemFrom({ status: response.status, text: await response.text() }));
}

export async function read(path, query, signal) {
  return parse((await get(path, { query, signal })).text);
}

/** How Keylane keeps a topic; null for one that it does not keep, and where that is not known. */
export async function layoutOf(topic, signal) {
  try {
    return await read(pathOf("topics", topic), {}, signal);
  } catch (error) {
    if (error instanceof Failed) return null;
    throw error;
  }
}

/** The ids of the Kafka clusters. Who may not read all topics may not ask for them. */
export async function clustersOf(signal) {
  const { data } = await read("/v3/clusters", {}, signal);
  return data.map((each) => each.cluster_id);
}

/**
 * As `read`, for what the page repeats by itself: one after the other. The function `explore` has few environments,
 * and people's own requests must not wait for samples.
 */
export function readLater(path, query, signal) {
  const next = waiting.then(() => read(path, query, signal));
  waiting = next.catch(() => {});
  return next;
}
