/** What the views of one topic share: the heading, the tabs, and the question for a topic where none is named. */

import { element, field, folding, submit } from "./dom.js";

/** The tabs of a topic, by route. It opens on the first. */
export const OF_TOPIC = { records: "Records", range: "Keys", key: "Key", find: "Find", write: "Write", schemas: "Schemas", lanes: "Lanes", groups: "Groups", settings: "Settings" };
let last = "";

/** The topic that was looked at last: a form without one begins with it. */
export const lastTopic = () => last;
export function rememberTopic(topic) {
  last = topic || last;
}

export const topicLink = (topic, route = "records") => `#/${route}?${new URLSearchParams({ topic })}`;

const tabs = (label, here, links) =>
  element("nav", { class: "tabs", "aria-label": label }, links.map(([name, text, href]) => element("a", { href, "aria-current": name === here ? "page" : null }, text)));

/** What is beside the list of topics. */
export const clusterTabs = (here) => tabs("Kafka", here, [["topics", "Topics", "#/topics"], ["brokers", "Brokers", "#/brokers"]]);

/** Put the heading of a topic's view and its tabs in place; returns the topic, "" after a form that asks for one. */
export function topicHead(main, params, here, title) {
  const topic = params.get("topic") ?? "";
  main.append(element("h1", {}, topic ? title(topic) : `${OF_TOPIC[here]} of a topic`));
  if (topic) {
    const bar = tabs(`Topic ${topic}`, here, Object.entries(OF_TOPIC).map(([name, text]) => [name, text, topicLink(topic, name)]));
    main.append(bar);
    // On a phone the tabs scroll.
    const chosen = bar.querySelector("[aria-current]");
    bar.scrollLeft = chosen.offsetLeft - bar.offsetLeft - bar.clientWidth / 3;
    return topic;
  }
  main.append(element("form", { class: "fields", data: { route: here } },
    field("Topic", { name: "topic", value: last, required: true, list: "topics" }),
    submit("Show")));
  return "";
}

/** The form of a topic's view: `fields`, and `action`, the word on its button. On a phone it folds away. */
export function topicForm(params, route, fields, action = "Show", isOpen = false) {
  const { topic, fields: columns, ...given } = Object.fromEntries(params);
  const hidden = Object.entries({ topic, fields: columns }).filter(([, value]) => value).map(([name, value]) => element("input", { type: "hidden", name, value }));
  const form = element("form", { class: "fields", data: { route } }, hidden, fields, submit(action));
  const set = Object.values(given).filter(Boolean).join(", ");
  return folding(form, set ? `Shown: ${set}` : "Choose what is shown", isOpen);
}
