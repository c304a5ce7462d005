/** What the state of a topic is in a word: the list of topics and a topic's own page say the same. */

import { badge } from "./dom.js";

const OLD_MS = 10_000;
const isOld = (topic) => topic.age_ms !== undefined && topic.age_ms > OLD_MS;
const straysOf = (topic) => topic.strays?.strays ?? 0;

/** How far the state is behind; null where that is not known, because nobody has looked for a while. */
export const lagOf = (topic) => (isOld(topic) ? null : topic.lag);

/** How much a topic needs to be looked at: 0 for one that is fresh. */
export const troubleOf = (topic) => (topic.incomplete ? 4 : isOld(topic) ? 3 : topic.building ? 2 : straysOf(topic) ? 1 : 0);

export function stateBadges(topic) {
  const marks = [
    topic.incomplete && badge("incomplete", "bad", "Retention removed records before a lane had them"),
    isOld(topic) && badge("old", "warn", "The job does not keep up, or does not run"),
    topic.building && badge("building", "warn", "A lane has never been complete"),
    straysOf(topic) > 0 && badge("strays", "plain", `${straysOf(topic)} records lie in another partition than their key's`),
  ].filter(Boolean);
  return marks.length ? marks : [badge("fresh", "good")];
}
