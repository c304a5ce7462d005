/** One topic: its layout, and the lane map, which follows the topic. */

import { choice, element, facts, field, reading } from "./dom.js";
import { age, count } from "./format.js";
import { announce, redraw } from "./lanes.js";
import { every } from "./polling.js";
import { guarded } from "./problem.js";
import { hotLanes, laneRates, takeSample } from "./samples.js";
import { pathOf, readLater } from "./session.js";
import { stateBadges } from "./topics.js";

const EVERY_S = 2;

function optionsOf(layout) {
  const given = Object.entries(layout.options).filter(([, value]) => value !== null && value !== false);
  return given.map(([name, value]) => `${name} = ${value}`).join(", ");
}

export async function show(main, params, signal) {
  const topic = params.get("topic") ?? "";
  main.append(
    element("h1", {}, topic ? `Topic ${topic}` : "A topic"),
    element(
      "form",
      { class: "fields", data: { route: "topic" } },
      field("Topic", { name: "topic", value: topic, required: true, list: "topics" }),
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
    element("p", { class: "row" },
      element("a", { class: "button", href: `#/key?topic=${encodeURIComponent(topic)}` }, "Read a key"),
      element("a", { class: "button", href: `#/range?topic=${encodeURIComponent(topic)}` }, "Read a range")),
  );
  let layout = null;
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
      summary.replaceChildren(facts([
        ["Lag", count(layout.lag)], ["Age", age(layout.age_ms)],
        ["Partitions", count(layout.partitions)], ["Stripes", count(layout.stripes)],
        ["Partitioner", layout.partitioner], ["Partition by", layout.partition_by], ["Generation", layout.generation],
      ]), element("p", { class: "hint" }, `Options: ${optionsOf(layout)}`));
      redraw(map, layout, context);
    }),
  );
}
