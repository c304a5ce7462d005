/** All topics that Keylane serves, with rate, lag and age as they have been since the page was opened. */

import { sparkline } from "./charts.js";
import { badge, element, field, reading } from "./dom.js";
import { age, count, rate, short } from "./format.js";
import { every } from "./polling.js";
import { guarded } from "./problem.js";
import { rates, takeSample } from "./samples.js";
import { Failed, pathOf, read, readLater } from "./session.js";

const ON_A_PAGE = 24;
const EVERY_S = 2;
/** Each topic is a request, on AWS an invocation: many topics are asked less often. */
const REQUESTS_PER_S = 4;
export const OLD_MS = 10_000;

function metric(name, value, values, unit) {
  return element(
    "div",
    { class: "metric" },
    element("span", { class: "name" }, name),
    element("span", { class: "number" }, value),
    sparkline(values, `${name} of the last ${values.length} samples${unit}, now ${value}`),
  );
}

export function stateBadges(layout) {
  const isOld = layout.age_ms !== undefined && layout.age_ms > OLD_MS;
  const marks = [
    layout.building && badge("building", "warn", "A lane has never been complete"),
    layout.incomplete && badge("incomplete", "bad", "Retention removed records before a lane had them"),
    isOld && badge("old", "warn", "The job does not keep up, or does not run"),
    (layout.strays?.strays ?? 0) > 0 && badge("strays", "plain", `${layout.strays.strays} records lie in another partition than their key's`),
  ].filter(Boolean);
  return marks.length ? marks : [badge("fresh", "good")];
}

function card(layout) {
  const list = takeSample(layout);
  const perSecond = rates(list);
  return [
    element("h2", {}, element("a", { href: `#/topic?topic=${encodeURIComponent(layout.topic)}` }, layout.topic)),
    element("p", { class: "marks" }, stateBadges(layout)),
    element("div", { class: "metrics" },
      metric("Rate", rate(perSecond.at(-1) ?? null), perSecond, " in records a second"),
      metric("Lag", short(layout.lag), list.map((each) => each.lag), " in records"),
      metric("Age", age(layout.age_ms), list.map((each) => each.age), " in milliseconds")),
    element("p", { class: "hint" }, `${count(layout.partitions)} partitions, ${count(layout.stripes)} ${layout.stripes === 1 ? "stripe" : "stripes"} each, generation ${layout.generation}`),
  ];
}

/** Ask each topic once more; a topic that Keylane does not serve goes to the list below. */
async function refresh(cards, unserved, grid, signal) {
  for (const [name, place] of cards) {
    try {
      place.replaceChildren(...card(await readLater(pathOf("topics", name), {}, signal)));
      if (!place.isConnected) grid.append(place);
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      if (error.problem.status === 404 || error.problem.status === 403) {
        cards.delete(name);
        unserved.add(name);
        place.remove();
      } else {
        place.replaceChildren(element("h2", {}, name), element("p", {}, badge("no answer", "bad"), ` ${error.problem.detail ?? error.problem.title}`));
        if (!place.isConnected) grid.append(place);
      }
    }
  }
}

/** Offer names of topics in every form. */
export async function offerTopics(signal) {
  const { topics } = await read("/topics", { limit: 200 }, signal);
  document.getElementById("topics").replaceChildren(...topics.map(({ topic }) => element("option", { value: topic })));
}

export async function show(main, params, signal) {
  const prefix = params.get("prefix") ?? "";
  const grid = element("ul", { class: "cards" });
  const others = element("div", {}, reading());
  const more = element("p", { class: "row" });
  main.append(
    element("h1", {}, "Topics"),
    element(
      "form",
      { class: "fields", data: { route: "topics" } },
      field("Names that begin with", { name: "prefix", value: prefix, type: "search" }),
      element("button", { type: "submit", class: "main" }, "Show"),
    ),
    grid, more, others,
  );
  await guarded(others, async () => {
    const { topics, next } = await read("/topics", { prefix, after: params.get("after") ?? "", limit: ON_A_PAGE }, signal);
    others.replaceChildren();
    if (!topics.length) grid.replaceWith(element("p", {}, "Kafka has no topic with such a name."));
    if (next) more.append(element("a", { class: "button", href: `#/topics?prefix=${encodeURIComponent(prefix)}&after=${encodeURIComponent(next)}` }, "More topics"));
    const cards = new Map(topics.map(({ topic }) => [topic, element("li", { class: "card" })]));
    const unserved = new Set();
    await every(Math.max(EVERY_S, topics.length / REQUESTS_PER_S), signal, async () => {
      const before = unserved.size;
      await refresh(cards, unserved, grid, signal);
      if (unserved.size === before) return;
      others.replaceChildren(
        element("details", {}, element("summary", {}, `${unserved.size} topics of Kafka that Keylane does not serve`), element("ul", { class: "picks" }, [...unserved].sort().map((name) => element("li", {}, element("a", { class: "button", href: `#/records?topic=${encodeURIComponent(name)}` }, name))))),
      );
    });
  });
}
