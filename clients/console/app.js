/** The page: which view is shown, the connection, and the service's health. */

import * as brokers from "./brokers.js";
import { element, say } from "./dom.js";
import * as find from "./find.js";
import * as groups from "./groups.js";
import * as key from "./key.js";
import * as lanes from "./lanes.js";
import * as login from "./login.js";
import { every, isPaused, setPaused } from "./polling.js";
import { explain } from "./problem.js";
import * as range from "./range.js";
import * as records from "./records.js";
import * as schemas from "./schemas.js";
import { connect, readLater, settings } from "./session.js";
import * as topicSettings from "./settings.js";
import { OF_TOPIC, rememberTopic } from "./topicbar.js";
import * as topics from "./topics.js";
import * as tryIt from "./try.js";
import * as views from "./view.js";
import * as write from "./write.js";

const VIEWS = { topics, brokers, view: views, try: tryIt, records, range, find, key, write, schemas, lanes, groups, settings: topicSettings };
const IN_BAR = { topics: "Topics", view: "Views", try: "Try it" };
const TITLES = { ...IN_BAR, ...OF_TOPIC, brokers: "Brokers" };
const FIRST = "topics";
const HEALTH_EVERY_S = 15;
const main = document.getElementById("main");
let shown = new AbortController();
let isFirst = true;

/** "#/key?topic=flights" -> ["key", URLSearchParams]. */
function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  return [path.replace(/^\//, "") || FIRST, new URLSearchParams(query)];
}

/** An address that names no view, such as one with a letter too few. */
const missing = {
  async show(at) {
    const links = Object.entries(IN_BAR).map(([name, title]) => element("li", {}, element("a", { class: "button", href: `#/${name}` }, title)));
    at.append(element("h1", {}, "No such view"), element("p", {}, "The console has no view ", element("code", {}, location.hash), ". It has these:"), element("ul", { class: "picks" }, links));
  },
};

async function render() {
  shown.abort();
  shown = new AbortController();
  const { signal } = shown;
  const [name, params] = route();
  const view = Object.hasOwn(VIEWS, name) ? VIEWS[name] : missing;
  document.title = [params.get("topic"), TITLES[name] ?? "No such view", "Keylane"].filter(Boolean).join(" – ");
  for (const each of document.querySelectorAll(".bar nav a")) {
    const isHere = each.hash === `#/${name in IN_BAR ? name : FIRST}`;
    if (isHere) {
      each.setAttribute("aria-current", "page");
      // On a phone the bar scrolls.
      each.parentElement.scrollLeft = each.offsetLeft - each.parentElement.offsetLeft - each.parentElement.clientWidth / 3;
    } else each.removeAttribute("aria-current");
  }
  main.replaceChildren();
  rememberTopic(params.get("topic"));
  const done = view.show(main, params, signal).catch(async (error) => {
    if (error.name !== "AbortError") main.append(await explain(error));
  });
  // A view puts its heading there at once: who listens hears where they are.
  if (!isFirst) main.focus();
  isFirst = false;
  await done;
}

/** A form of a view names its route: its fields become the address, which can be kept and shared. */
function onSubmit(event) {
  const name = event.target.dataset.route;
  if (!name) return;
  event.preventDefault();
  const given = [...new FormData(event.target)].filter(([, value]) => value !== "");
  const next = `#/${name}?${new URLSearchParams(given)}`;
  if (next === location.hash) render();
  else location.hash = next;
}

function onPause(event) {
  setPaused(!isPaused());
  event.target.setAttribute("aria-pressed", String(isPaused()));
  say(isPaused() ? "Paused: numbers stay as they are" : "Numbers change again");
}

function showLogin() {
  const button = document.getElementById("login");
  button.hidden = !login.isOffered();
  button.textContent = login.token() ? "Log out" : "Log in";
}

async function onLogin() {
  if (!login.token()) return login.logIn().catch(showFailure);
  login.logOut();
  render();
}

async function showFailure(error) {
  main.prepend(await explain(error));
}

function openConnection() {
  const dialog = document.getElementById("connection");
  const fields = dialog.querySelector("form").elements;
  for (const [name, value] of Object.entries(settings())) fields[name].value = value;
  dialog.showModal();
}

function onConnection(event) {
  if (event.target.returnValue !== "save") return;
  connect(Object.fromEntries(new FormData(event.target.querySelector("form"))));
  render();
  showHealth();
}

async function showHealth() {
  const place = document.getElementById("health");
  try {
    const { parts } = await readLater("/health");
    place.replaceChildren(...Object.entries(parts).map(([name, part]) => healthPart(name, part.ready)));
  } catch (error) {
    const parts = error.response && healthOf(error.response.text);
    place.replaceChildren(...(parts ? Object.entries(parts).map(([name, each]) => healthPart(name, each.ready)) : [healthPart("service", false)]));
  }
}

function healthOf(text) {
  try {
    return JSON.parse(text).parts;
  } catch {
    return null;
  }
}

const healthPart = (name, isReady) => element("span", { class: isReady ? "part good" : "part bad" }, element("span", { class: "dot", "aria-hidden": "true" }), element("span", { class: "word" }, `${name} ${isReady ? "ready" : "away"}`));

window.addEventListener("hashchange", render);
main.addEventListener("submit", onSubmit);
document.getElementById("pause").addEventListener("click", onPause);
document.getElementById("connect").addEventListener("click", openConnection);
document.getElementById("connection").addEventListener("close", onConnection);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("login").addEventListener("click", onLogin);
const loggedIn = await login.begin(showLogin).catch((error) => error);
render();
if (loggedIn) showFailure(loggedIn);
topics.offerTopics().catch(() => {});
every(HEALTH_EVERY_S, undefined, showHealth);
