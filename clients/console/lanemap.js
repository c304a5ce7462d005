/** The lane map: a topic's partitions on slots on shards, coloured by lag or age. */

import { badge, drawn, element, facts, hint, say, table } from "./dom.js";
import { age, count, rate, short } from "./format.js";

const SLOTS = 16_384;
const COLUMNS = 1024;
const TILES = 512;
const STEPS = {
  lag: [0, 100, 10_000, 1_000_000],
  age: [2000, 10_000, 60_000, 600_000],
};
const LEGEND = {
  lag: ["none", "up to 100", "up to 10,000", "up to a million", "more"],
  age: ["up to 2 s", "up to 10 s", "up to 1 min", "up to 10 min", "more, or unknown"],
};

export const nameOf = (lane) => `${lane.partition}.${lane.stripe}`;

/** 0 (well) to 4; a lane of unknown age counts as the oldest. */
export function levelOf(lane, by) {
  const value = by === "lag" ? lane.lag : lane.age_ms;
  const level = value === undefined || value === null ? -1 : STEPS[by].findIndex((bound) => value <= bound);
  return level === -1 ? 4 : level;
}

function marksOf(lane, hot) {
  return [
    hot.has(nameOf(lane)) && badge("hot", "warn", "Gets more than twice the mean of the topic's lanes"),
    lane.building && badge("building", "warn"),
    lane.incomplete && badge("incomplete", "bad"),
    lane.has_strays && badge("strays", "plain"),
  ].filter(Boolean);
}

/** Lanes by slot, each with the slot behind its last: where the next lane begins. */
function spans(lanes) {
  const sorted = [...lanes].sort((one, other) => one.slot - other.slot);
  return sorted.map((lane, index) => ({ lane, from: lane.slot, to: Math.max(sorted[index + 1]?.slot ?? SLOTS, lane.slot + 1) }));
}

function strip(all, by) {
  const x = (slot) => ((slot / SLOTS) * COLUMNS).toFixed(2);
  // A picture has no more columns than this: several lanes of one column show the worst of them.
  const drawnSpans = new Map();
  for (const span of all) {
    const at = all.length > COLUMNS ? Math.floor((span.from / SLOTS) * COLUMNS) : span.from;
    const held = drawnSpans.get(at);
    const level = levelOf(span.lane, by);
    drawnSpans.set(at, { from: held?.from ?? span.from, to: span.to, level: Math.max(held?.level ?? 0, level) });
  }
  return drawn(
    "svg",
    { class: "strip", viewBox: `0 0 ${COLUMNS} 40`, preserveAspectRatio: "none", role: "img", "aria-label": `${all.length} lanes over ${SLOTS} hash slots on ${new Set(all.map((each) => each.lane.shard)).size} shards; the table below has each lane` },
    [...drawnSpans.values()].map(({ from, to, level }) => drawn("rect", { class: `level-${level} cell`, x: x(from), y: 0, width: (x(to) - x(from)).toFixed(2), height: 40 })),
  );
}

/** Which shard has which of the slots above; the cards below say the same as text. */
function owners(all) {
  const runs = [];
  for (const { lane, from, to } of all) {
    if (runs.at(-1)?.shard === lane.shard) runs.at(-1).to = to;
    else runs.push({ shard: lane.shard, from, to });
  }
  const shown = runs.map(({ shard, from, to }) => {
    const made = element("span", {}, shard ?? "no node");
    made.style.flexGrow = String(to - from);
    return made;
  });
  return element("div", { class: "owners", "aria-hidden": "true" }, shown);
}

function tile(lane, by, context) {
  const name = nameOf(lane);
  const number = by === "lag" ? short(lane.lag) : age(lane.age_ms);
  return element(
    "li",
    {},
    element(
      "button",
      {
        type: "button",
        class: `tile level-${levelOf(lane, by)}`,
        "aria-pressed": String(context.picked === name),
        data: { lane: name },
        on: { click: () => context.onPick(name) },
      },
      element("span", { class: "lane" }, name),
      element("span", { class: "number" }, number, element("span", { class: "unseen" }, by === "lag" ? " records behind" : " old")),
      marksOf(lane, context.hot),
    ),
  );
}

function shardCard(shard, lanes, by, context) {
  const slots = lanes.map((lane) => lane.slot);
  // All stripes of a partition read the same records.
  const behind = new Map();
  for (const { partition, lag } of lanes) behind.set(partition, Math.max(lag ?? 0, behind.get(partition) ?? 0));
  const lag = [...behind.values()].reduce((sum, each) => sum + each, 0);
  return element(
    "section",
    { class: "card shard-card" },
    element("h3", {}, shard ?? "no node"),
    hint(`${lanes.length} ${lanes.length === 1 ? "lane" : "lanes"}, slots from ${count(Math.min(...slots))}, lag ${count(lag)}`),
    element("ul", { class: "tiles" }, lanes.map((lane) => tile(lane, by, context))),
  );
}

function details(lane, context) {
  const text = facts([
    ["Partition, stripe", `${lane.partition}, ${lane.stripe}`],
    ["Slot", count(lane.slot)],
    ["Shard", lane.shard],
    ["Next offset", count(lane.next_offset)],
    ["End of the log", count(lane.log_end)],
    ["Lag", count(lane.lag)],
    ["Age", age(lane.age_ms)],
    ["Rate", rate(context.rates.get(nameOf(lane)) ?? null)],
  ]);
  return element("section", { class: "card", "aria-label": `Lane ${nameOf(lane)}` }, element("h3", {}, `Lane ${nameOf(lane)} `, marksOf(lane, context.hot)), text);
}

function asTable(all, context) {
  return table(
    "All lanes",
    ["Lane", "Slot", "Shard", "Next offset", "Lag", "Age", "Rate", "State"],
    all.map(({ lane }) => {
      const marks = marksOf(lane, context.hot);
      return [nameOf(lane), lane.slot, lane.shard, count(lane.next_offset), count(lane.lag), age(lane.age_ms), rate(context.rates.get(nameOf(lane)) ?? null), marks.length ? marks : "complete"];
    }),
  );
}

/** The map as elements. `context`: {by, rates, hot, picked, onPick}. */
export function laneMap(layout, context) {
  const all = spans(layout.lanes);
  const worst = all.length > TILES ? [...all].sort((one, other) => levelOf(other.lane, context.by) - levelOf(one.lane, context.by)).slice(0, TILES) : all;
  const shards = Map.groupBy ? Map.groupBy(worst, ({ lane }) => lane.shard) : group(worst);
  const picked = all.find(({ lane }) => nameOf(lane) === context.picked);
  const isOpen = document.getElementById("lane-table")?.open ?? false;
  return [
    element("p", { class: "axis" }, element("span", {}, "slot 0"), element("span", {}, "16,383")),
    strip(all, context.by),
    owners(all),
    element("ul", { class: "legend", "aria-label": `Colours, by ${context.by}` }, LEGEND[context.by].map((text, level) => element("li", {}, element("span", { class: `swatch level-${level}`, "aria-hidden": "true" }), text))),
    worst.length < all.length && hint(`Tiles of the ${TILES} worst of ${all.length} lanes; the table has all.`),
    element("div", { class: "shards" }, [...shards].map(([shard, held]) => shardCard(shard, held.map(({ lane }) => lane), context.by, context))),
    picked && details(picked.lane, context),
    element("details", { id: "lane-table", open: isOpen }, element("summary", {}, "As a table"), asTable(all, context)),
  ].filter(Boolean);
}

function group(worst) {
  const shards = new Map();
  for (const each of worst) shards.set(each.lane.shard, [...(shards.get(each.lane.shard) ?? []), each]);
  return shards;
}

/** Put a new map in place; the lane that had the focus keeps it. */
export function redraw(place, layout, context) {
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.lane : null;
  const hadTable = place.contains(document.activeElement) && document.activeElement.localName === "summary";
  place.replaceChildren(...laneMap(layout, context));
  if (focused) place.querySelector(`[data-lane="${focused}"]`)?.focus();
  if (hadTable) place.querySelector("summary")?.focus();
}

export function announce(lane, layout) {
  const found = layout.lanes.find((each) => nameOf(each) === lane);
  if (found) say(`Lane ${lane}: slot ${found.slot} on ${found.shard}, lag ${found.lag}, age ${age(found.age_ms)}`);
}
