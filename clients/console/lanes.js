/** One topic's inside: its rate, lag and age, its layout, and the lane map, which follows the topic. */

import { metric } from "./charts.js";
import { choice, element, facts, hint, reading } from "./dom.js";
import { age, count, optionText, rate, short } from "./format.js";
import { announce, redraw } from "./lanemap.js";
import { every } from "./polling.js";
import { guarded } from "./problem.js";
import { hotLanes, laneRates, rates, takeSample } from "./samples.js";
import { lagOf, stateBadges } from "./state.js";
import { Failed, pathOf, readLater } from "./session.js";
import { topicForm, topicHead } from "./topicbar.js";

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

function metrics(layout, list) {
  const perSecond = rates(list);
  return element("div", { class: "card metrics" },
    metric("Rate", rate(perSecond.at(-1) ?? null), perSecond, " in records a second"),
    metric("Lag", short(lagOf(layout)), list.map((each) => each.lag), " in records"),
    metric("Age", age(layout.age_ms), list.map((each) => each.age), " in milliseconds"));
}

function summaryOf(layout, keys) {
  return [
    facts([
      ["Keys", keys],
      ["Partitions", count(layout.partitions)], ["Stripes", count(layout.stripes)],
      ["Partitioner", layout.partitioner], ["Partition by", layout.partition_by], ["Generation", layout.generation],
    ]),
    hint(`Options: ${optionsOf(layout)}`),
  ];
}

export async function show(main, params, signal) {
  const topic = topicHead(main, params, "lanes", (name) => `Lanes of ${name}`);
  if (!topic) return;
  const by = params.get("by") === "age" ? "age" : "lag";
  const context = { by, rates: new Map(), hot: new Set(), picked: null };
  const state = element("p", { class: "marks" });
  const top = element("div");
  const summary = element("div");
  const map = element("div", { id: "map" });
  const trouble = element("div", {}, reading());
  main.append(state, top, summary, trouble, element("h2", {}, "Lane map"), topicForm(params, "lanes", [choice("Colours by", "by", [["lag", "lag"], ["age", "age"]], by)]), map);
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
      top.replaceChildren(metrics(layout, list));
      summary.replaceChildren(...summaryOf(layout, keys));
      redraw(map, layout, context);
      // Another function counts: the rest of the page does not wait for it.
      keys = await keysOf(layout, signal);
      summary.replaceChildren(...summaryOf(layout, keys));
    }),
  );
}
