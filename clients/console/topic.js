/** One topic: its layout, and the lane map, which follows the topic. */

import { choice, element, facts, field, reading } from "./dom.js";
import { age, count, optionText } from "./format.js";
import { announce, redraw } from "./lanes.js";
import { every } from "./polling.js";
import { guarded } from "./problem.js";
import { hotLanes, laneRates, takeSample } from "./samples.js";
import { Failed, pathOf, readLater } from "./session.js";
import { topicField, topicTabs } from "./topicbar.js";
import { stateBadges } from "./topics.js";

const EVERY_S = 2;

function optionsOf(layout) {
  const given = Object.entries(layout.options).filter(([, value]) => value !== null && value !== false && value.length !== 0);
  return given.map(([name, value]) => `${name} = ${optionText(name, value)}`).join(", ");
}

/** How many keys the topic has, as text; null if it has no index, which a count needs. */
async function keysOf(layout, signal) {
  if (!layout.options.index) return null;
  try {
    return count((await readLater(pathOf("topics", layout.topic, "count"), { partial: true }, signal)).count);
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    return "unknown";
  }
}

function summaryOf(layout, keys) {
  return [
    facts([
      ["Keys", keys],
      ["Lag", count(layout.lag)], ["Age", age(layout.age_ms)],
      ["Partitions", count(layout.partitions)], ["Stripes", count(layout.stripes)],
      ["Partitioner", layout.partitioner], ["Partition by", layout.partition_by], ["Generation", layout.generation],
    ]),
    element("p", { class: "hint" }, `Options: ${optionsOf(layout)}`),
  ];
}

export async function show(main, params, signal) {
  const topic = params.get("topic") ?? "";
  main.append(
    element("h1", {}, topic ? `Topic ${topic}` : "A topic"),
    topicTabs(topic, "topic"),
    element(
      "form",
      { class: "fields", data: { route: "topic" } },
      topicField(params),
      choice("Colours by", "by", [["lag", "lag"], ["age", "age"]], params.get("by") ?? "lag"),
      element("button", { type: "submit", class: "main" }, "Show"),
    ),
  );
  if (!topic) return;
  const context = { by: params.get("by") === "age" ? "age" : "lag", rates: new Map(), hot: new Set(), picked: null };
  const state = element("p", { class: "marks" });
  const summary = element("div");
  const map = element("div", { id: "map" });
  const trouble = element("div", {}, reading());
  main.append(
    state, summary, trouble,
    element("h2", {}, "Lanes"), map,
    element("p", { class: "row" }, element("a", { class: "button", href: `#/key?topic=${encodeURIComponent(topic)}` }, "Read a key")),
  );
  let layout = null;
  let keys = null;
  context.onPick = (name) => {
    context.picked = context.picked === name ? null : name;
    redraw(map, layout, context);
    if (context.picked) announce(name, layout);
  };
  await every(EVERY_S, signal, () =>
    guarded(trouble, async () => {
      layout = await readLater(pathOf("topics", topic), {}, signal);
      const list = takeSample(layout);
      context.rates = laneRates(list);
      context.hot = hotLanes(context.rates);
      trouble.replaceChildren();
      state.replaceChildren(...stateBadges(layout));
      summary.replaceChildren(...summaryOf(layout, keys));
      redraw(map, layout, context);
      // Another function counts: the rest of the page does not wait for it.
      keys = await keysOf(layout, signal);
      summary.replaceChildren(...summaryOf(layout, keys));
    }),
  );
}
