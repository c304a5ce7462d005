/** What the views of one topic share: the field with its name, and the links to what there is about it. */

import { element, field } from "./dom.js";

const TABS = [["topic", "Lanes"], ["records", "Records"], ["range", "Keys"], ["find", "Find"], ["groups", "Groups"], ["settings", "Settings"]];
let last = "";

/** The topic that was looked at last: a form without one begins with it. */
export const lastTopic = () => last;
export function rememberTopic(topic) {
  last = topic || last;
}

export const topicField = (params) => field("Topic", { name: "topic", value: params.get("topic") ?? last, required: true, list: "topics" });

/** Links to what there is about a topic; nothing without one. */
export function topicTabs(topic, here) {
  if (!topic) return "";
  const links = TABS.map(([name, text]) => element("a", { href: `#/${name}?${new URLSearchParams({ topic })}`, "aria-current": name === here ? "page" : null }, text));
  return element("nav", { class: "tabs", "aria-label": `Topic ${topic}` }, links);
}
