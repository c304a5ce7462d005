/** The departures board: live rows, an aircraft's history, an own write read back, and delays by day. */

import { config, Failed, follow, historyOf, windowsOf, writeAndRead } from "./api.js";
import { columns } from "./chart.js";
import { element } from "./dom.js";

const ROWS = 10;
const LATE_MIN = 15;
const VERY_LATE_MIN = 60;
const rows = document.getElementById("rows");
let seen = 0;

const clock = (value) => (Number.isInteger(value) ? `${String(Math.floor(value / 100)).padStart(2, "0")}:${String(value % 100).padStart(2, "0")}` : "–");

function status({ dep_time: departed, dep_delay: delay }) {
  if (departed === undefined) return element("span", { class: "badge" }, "scheduled");
  if (departed === null) return element("span", { class: "badge bad" }, "cancelled");
  if (delay >= VERY_LATE_MIN) return element("span", { class: "badge bad" }, `${delay} min late`);
  if (delay >= LATE_MIN) return element("span", { class: "badge late" }, `${delay} min late`);
  return element("span", { class: "badge" }, delay < 0 ? `${-delay} min early` : delay > 0 ? `${delay} min late` : "on time");
}

const isFlight = (value) => value !== null && typeof value === "object" && "dest" in value;
const cells = (...found) => found.map((each) => element("td", {}, each));

function onChange({ key, value }) {
  if (!isFlight(value)) return;
  if (!seen++) rows.replaceChildren();
  const name = `${value.carrier ?? ""}${value.flight ?? ""}`;
  rows.prepend(element("tr", { class: "new", "data-key": key }, cells(name, value.origin, value.dest, key, clock(value.sched_dep_time), status(value))));
  while (rows.children.length > ROWS) rows.lastChild.remove();
}

function onState(isOpen, why = "") {
  const live = document.getElementById("live");
  live.replaceChildren(...(isOpen ? [element("span", { class: "dot", "aria-hidden": "true" }), "Live"] : [`Not live: ${why}`]));
}

/** Run a form's task; what fails stands where the result would. */
function onSubmit(form, place, task) {
  document.getElementById(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    const target = document.getElementById(place);
    try {
      target.replaceChildren(...(await task(Object.fromEntries(new FormData(event.target)))));
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      target.replaceChildren(element("span", { class: "problem" }, error.message));
    }
  });
}

async function search({ tail }) {
  const { records } = await historyOf(tail.trim());
  if (!records.length) return [element("p", {}, `Nothing is known of ${tail}.`)];
  const known = records.map(({ position, timestamp, value, deleted }) => element("tr", {},
    cells(new Date(timestamp).toISOString().slice(0, 19).replace("T", " "), position, deleted || !isFlight(value) ? "–" : `${value.origin} → ${value.dest}`, deleted || !isFlight(value) ? "deleted" : status(value))));
  const heads = ["Written", "Position", "Route", "Status"].map((name) => element("th", { scope: "col" }, name));
  return [element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Records of ${tail}` },
    element("table", {}, element("thead", {}, element("tr", {}, heads)), element("tbody", {}, known)))];
}

async function announce(given) {
  const now = new Date();
  const minutes = now.getUTCHours() * 60 + now.getUTCMinutes();
  const left = (((minutes + Number(given.delay)) % 1440) + 1440) % 1440;
  const hhmm = (each) => Math.floor(each / 60) * 100 + (each % 60);
  const flight = {
    carrier: given.flight.slice(0, 2), flight: Number(given.flight.slice(2)), tailnum: given.tailnum, origin: given.origin, dest: given.dest,
    sched_dep_time: hhmm(minutes), dep_time: hhmm(left), dep_delay: Number(given.delay), time_hour: `${now.toISOString().slice(0, 13)}:00:00Z`,
  };
  const { written, read, tookMs } = await writeAndRead(given.tailnum, flight);
  return [`Written at ${written.position}, read back as ${read.value.origin} → ${read.value.dest} after ${Math.round(tookMs)} ms.`];
}

async function showDelays({ place, from, to }) {
  const windows = await windowsOf(place, from, to);
  if (!windows.length) return [element("p", {}, "There are no flights in this time.")];
  return [columns(windows, config.column, `${config.column} of ${windows.length} days from ${place}`, document.getElementById("chart").clientWidth)];
}

function prepareDelays() {
  const form = document.getElementById("delays");
  form.elements.place.append(...config.places.map((each) => element("option", {}, each)));
  [form.elements.from.value, form.elements.to.value] = config.days;
}

onSubmit("search", "found", search);
onSubmit("write", "written", announce);
onSubmit("delays", "chart", showDelays);
prepareDelays();
follow(onChange, onState);
document.getElementById("delays").requestSubmit();
