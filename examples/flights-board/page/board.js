/** The board of one customer: its own rows, live; and what an airline does with its aircraft. */
import { Bearer, Client, RetryPolicy } from "./client.js";

const config = await (await fetch("config.json")).json();
const customer = new URLSearchParams(location.search).get("customer") ?? Object.keys(config.customers)[0];
const { airline } = config.customers[customer] ?? {};
const place = (id) => document.getElementById(id);
const changed = new Set();

/** The client asks before each request: a token is renewed in time, and the live copy goes on with the new one. */
let held, renewAt = 0;
async function token() {
  if (Date.now() < renewAt) return held;
  const answer = await fetch("token", { method: "POST", body: new URLSearchParams({ customer }) });
  if (!answer.ok) throw new Error(`nobody is called ${customer} here`);
  renewAt = Date.now() + config.token_lifetime_s * 500;
  return (held = await answer.text());
}

const options = { auth: new Bearer(token), retries: new RetryPolicy({ attempts: 10_000 }) };
const flights = new Client(config.api, { auth: options.auth }).session().topic(config.topic);
const copy = new Client(config.api, options).topic(config.topic).sync(); // it outlives any outage

/** Text is always text: nothing here parses HTML. */
function element(name, properties, ...children) {
  const made = document.createElement(name);
  for (const [each, text] of Object.entries(properties)) made.setAttribute(each, text);
  made.append(...children);
  return made;
}

const clock = (hhmm) => (hhmm == null ? "–" : String(hhmm).padStart(4, "0").replace(/(..)$/, ":$1"));
const delayed = (minutes) => (minutes > 0 ? `${minutes} min late` : minutes < 0 ? `${-minutes} min early` : "on time");
const late = (minutes) => (minutes == null ? "–" : delayed(minutes));
const status = ({ dep_time: left, dep_delay: delay }) => (left == null ? "cancelled" : late(delay));

const names = ["Flight", "Aircraft", "From", "To", "Scheduled", "Departed", ...(airline ? ["Arrival", "Note"] : [])];
place("heads").append(...names.map((name) => element("th", { scope: "col" }, name)));

function rowOf({ key, value }) {
  const { carrier, flight, origin, dest, sched_dep_time: scheduled, arr_delay: arrival, note = "" } = value;
  const own = airline ? [late(arrival), note] : []; // an airport's records do not have them
  const cells = [`${carrier} ${flight}`, key.split("/")[1], origin, dest, clock(scheduled), status(value), ...own];
  const properties = { "data-key": key, class: changed.has(key) ? "new" : "" };
  return element("tr", properties, ...cells.map((each) => element("td", {}, each)));
}

function show() {
  const newest = [...copy].sort((a, b) => b.timestampMs - a.timestampMs).slice(0, 12);
  place("rows").replaceChildren(...newest.map(rowOf));
  changed.clear();
  const text = `Live: ${copy.size} aircraft`;
  if (place("live").textContent !== text) place("live").textContent = text;
}

async function announce({ tail, flight, origin, dest, delay, note }) {
  const time = (ms) => Number(new Date(ms).toISOString().slice(11, 16).replace(":", ""));
  const [key, begun] = [`${airline}/${tail}`, performance.now()];
  const plan = { carrier: airline, flight: Number(flight), origin, dest, sched_dep_time: time(Date.now()), note };
  await flights.put(key, { ...plan, dep_time: time(Date.now() + delay * 60_000), dep_delay: Number(delay) });
  const { value } = await flights.read(key); // a session reads its own writes
  const found = `${value.origin} → ${value.dest} after ${Math.round(performance.now() - begun)} ms`;
  place("announced").textContent = `Written, and read back as ${found}. All it has flown:`;
  place("history").replaceChildren();
  for await (const { position, value: flown } of flights.history(key)) {
    place("history").append(element("li", {}, `${flown.origin} → ${flown.dest}, ${status(flown)} (${position})`));
  }
}

place("own").hidden = !airline;
place("announce").addEventListener("submit", (event) => {
  event.preventDefault();
  const failed = (error) => (place("announced").textContent = `Not announced: ${error.message}`);
  announce(Object.fromEntries(new FormData(place("announce")))).catch(failed);
});
for (const name of Object.keys(config.customers)) {
  const current = name === customer ? { "aria-current": "page" } : {};
  place("customers").append(element("a", { href: `?${new URLSearchParams({ customer: name })}`, ...current }, name));
}
copy.closed.catch((error) => (place("live").textContent = `Not live: ${error.message}`));
const wake = ({ key }) => changed.add(key).size === 1 && requestAnimationFrame(show);
copy.ready.then(show).then(() => copy.subscribe(wake), () => undefined); // `closed` says why there is none
