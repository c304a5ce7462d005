/** All topics as a table, those with problems first; it is filtered as one types, and follows the topics. */

import { sparkline } from "./charts.js";
import { badge, button, choice, content, element, field, reading, tableOf, tableRow } from "./dom.js";
import { age, count, rate, short, size } from "./format.js";
import { every } from "./polling.js";
import { guarded } from "./problem.js";
import { rates, takeTotals } from "./samples.js";
import { read, readLater } from "./session.js";
import { lagOf, stateBadges, troubleOf } from "./state.js";
import { clusterTabs, topicLink } from "./topicbar.js";

const ON_A_PAGE = 500;
const EVERY_S = 2;
const TOPICS_PER_S = 100;
const PROBLEMS = "problems";

const rateOf = ({ samples }) => rates(samples).at(-1) ?? null;
const rateCell = (topic) => [element("span", { class: "number" }, rate(rateOf(topic))), sparkline(rates(topic.samples), `Rate of ${topic.topic} in the last ${topic.samples.length} samples`)];

/** By the name in the address: heading, what is sorted by, and the cell. Texts sort upwards, numbers downwards. */
const COLUMNS = {
  topic: ["Topic", ({ topic }) => topic, ({ topic }) => element("a", { href: topicLink(topic) }, topic)],
  [PROBLEMS]: ["State", ({ summary }) => (summary ? troubleOf(summary) : -1), ({ summary }) => (summary ? stateBadges(summary) : badge("not kept", "plain", "Keylane has no state of it: keylane.toml does not name it"))],
  keys: ["Keys", ({ summary }) => summary?.keys, ({ summary }) => count(summary?.keys)],
  memory: ["Memory", ({ summary }) => summary?.memory_bytes, ({ summary }) => size(summary?.memory_bytes)],
  rate: ["Rate", rateOf, rateCell],
  lag: ["Lag", ({ summary }) => summary && lagOf(summary), ({ summary }) => short(summary && lagOf(summary))],
  age: ["Age", ({ summary }) => summary?.age_ms, ({ summary }) => (summary ? age(summary.age_ms) : "–")],
  partitions: ["Partitions", ({ partitions }) => partitions, ({ partitions }) => count(partitions)],
};
const HEADS = Object.values(COLUMNS).map(([head]) => head);

/** Topics in the order of a column; what has no number comes last, and equals are in the order of their names. */
function inOrder(topics, sort) {
  const isReversed = sort.startsWith("-");
  const [, valueOf] = COLUMNS[sort.replace("-", "")] ?? COLUMNS[PROBLEMS];
  const compare = (one, other) => {
    const [a, b] = [valueOf(one), valueOf(other)];
    if ((a ?? null) === null || (b ?? null) === null) return ((a ?? null) === null) - ((b ?? null) === null);
    return (typeof a === "string" ? (a < b ? -1 : Number(a > b)) : b - a) * (isReversed ? -1 : 1);
  };
  return [...topics].sort((one, other) => compare(one, other) || (one.topic < other.topic ? -1 : 1));
}

/** All topics as they are now. */
async function readAll(signal) {
  const all = [];
  for (let after = ""; after !== undefined; ) {
    const page = await readLater("/topics", { summary: "true", limit: ON_A_PAGE, after }, signal);
    all.push(...page.topics);
    after = page.next;
  }
  return all;
}

/** Offer names of topics in every form. */
export async function offerTopics(signal) {
  const { topics } = await read("/topics", {}, signal);
  document.getElementById("topics").replaceChildren(...topics.map(({ topic }) => element("option", { value: topic })));
}

export async function show(main, params, signal) {
  const given = { text: params.get("text") ?? "", sort: params.get("sort") ?? PROBLEMS };
  const rows = new Map();
  let topics = [];
  const total = element("p", { class: "hint", role: "status" });
  const trouble = element("div", {}, reading());
  const heads = Object.entries(COLUMNS).map(([name, [head]]) => element("th", { scope: "col", role: "columnheader", data: { column: name } }, button(head, () => sortBy(name), { class: "sort" })));
  const place = tableOf("Topics", heads, []);
  place.hidden = true;
  place.classList.add("brief");
  const body = place.querySelector("tbody");
  const text = field("Filter", { type: "search", value: given.text, placeholder: "a part of the name", on: { input: (event) => { given.text = event.target.value; keepAddress(); draw(); } } });
  const order = choice("Sort by", "sort", Object.entries(COLUMNS).map(([name, [head]]) => [name, name === PROBLEMS ? "problems first" : head.toLowerCase()]), given.sort.replace("-", ""));
  order.classList.add("order");
  order.addEventListener("change", (event) => sortBy(event.target.value));
  main.append(element("h1", {}, "Topics"), clusterTabs("topics"), element("div", { class: "fields filter" }, text, order), total, trouble, place);

  function sortBy(name) {
    given.sort = given.sort === name ? `-${name}` : name;
    keepAddress();
    draw();
  }
  function keepAddress() {
    const set = Object.entries(given).filter(([, value]) => value && value !== PROBLEMS);
    history.replaceState(null, "", `#/topics${set.length ? `?${new URLSearchParams(set)}` : ""}`);
  }
  /** Put the rows in order. A table that somebody points at stays as it is, unless they have asked for another order. */
  function draw(isAsked = true) {
    const sorted = isAsked || !body.matches(":hover, :focus-within") ? inOrder(topics, given.sort) : null;
    if (sorted?.some(({ topic }, index) => body.children[index] !== rows.get(topic))) body.replaceChildren(...sorted.map(({ topic }) => rows.get(topic)));
    const wanted = given.text.trim().toLowerCase();
    let shown = 0;
    for (const [name, row] of rows) {
      row.hidden = !name.toLowerCase().includes(wanted);
      shown += !row.hidden;
    }
    for (const head of heads) {
      const isSorted = head.dataset.column === given.sort.replace("-", "");
      const isUpwards = (head.dataset.column === "topic") !== given.sort.startsWith("-");
      if (isSorted) head.setAttribute("aria-sort", isUpwards ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
    const all = `${count(topics.length)} ${topics.length === 1 ? "topic" : "topics"}`;
    total.textContent = topics.length ? (wanted ? `${count(shown)} of ${all}` : all) : "Kafka has no topic that may be read here.";
    place.hidden = !topics.length;
  }
  function update(found) {
    topics = found.map((each) => ({ ...each, samples: each.summary ? takeTotals(each.topic, each.summary) : [] }));
    for (const name of [...rows.keys()].filter((each) => !topics.some(({ topic }) => topic === each))) {
      rows.get(name).remove();
      rows.delete(name);
    }
    for (const topic of topics) {
      const cells = Object.values(COLUMNS).map(([, , cellOf]) => cellOf(topic));
      const row = rows.get(topic.topic);
      // What is focused stays: the link to the topic is made once.
      if (row) cells.forEach((cell, index) => index && row.children[index].replaceChildren(content(cell)));
      else rows.set(topic.topic, tableRow(HEADS, cells));
    }
    draw(false);
  }
  await every(() => Math.max(EVERY_S, topics.length / TOPICS_PER_S), signal, () =>
    guarded(trouble, async () => {
      update(await readAll(signal));
      trouble.replaceChildren();
    }),
  );
}
