/** Requests to Keylane's API. Its address, and the names of topic and view, are in config.json beside this page. */

export const config = await (await fetch("config.json")).json();

/** A request that failed: the sentence of its problem document, or that no answer came. */
export class Failed extends Error {}

export const urlOf = (...parts) => `${config.api}/${parts.map(encodeURIComponent).join("/")}`;

async function answered(url, options) {
  let response;
  try {
    response = await fetch(url, { cache: "no-store", credentials: "omit", ...options });
  } catch {
    throw new Failed(`${config.api} did not answer: is it up, and does KEYLANE_CORS_ORIGIN name ${location.origin}?`);
  }
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch {
    // What is between the page and the API may answer without a problem document.
  }
  throw new Failed(problem.detail ?? `The answer has status ${response.status}.`);
}

export const historyOf = (tail) => answered(`${urlOf("topics", config.topic, "keys", tail, "history")}?limit=8`);

/** Write a record, then read the key as of this write or a later one; resolves to both answers and the milliseconds. */
export async function writeAndRead(tail, flight) {
  const url = urlOf("topics", config.topic, "keys", tail);
  const begun = performance.now();
  const written = await answered(url, { method: "PUT", body: JSON.stringify(flight), headers: { "Content-Type": "application/json" } });
  const read = await answered(`${url}?envelope=true`, { headers: { "Keylane-Min-Position": written.position, Prefer: "wait=10" } });
  return { written, read, tookMs: performance.now() - begun };
}

/** All windows of a place from one day on and before another. */
export async function windowsOf(place, from, to) {
  const url = `${urlOf("views", config.view, "keys", place)}?partial=true&limit=400&from=${from}&to=${to}`;
  return (await answered(url)).windows;
}

/** Call `onChange` with each change, `onState` with whether the stream is open. The browser connects again by itself. */
export function follow(onChange, onState) {
  const events = new EventSource(urlOf("topics", config.topic, "changes"));
  events.addEventListener("open", () => onState(true));
  events.addEventListener("record", (event) => onChange(JSON.parse(event.data)));
  events.addEventListener("problem", (event) => onState(false, JSON.parse(event.data).detail));
  events.addEventListener("error", () => {
    if (events.readyState !== EventSource.CLOSED) {
      onState(false, "connecting again");
      return;
    }
    // The answer was no stream. A browser does not try again then.
    onState(false, "no stream, trying again: this needs `keylane serve`");
    setTimeout(() => follow(onChange, onState), 5000);
  });
}
