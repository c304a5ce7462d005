/** The consumer groups that have committed offsets of a topic, and how far each is behind. */

import { element, hint, reading, table } from "./dom.js";
import { count } from "./format.js";
import { guarded } from "./problem.js";
import { clustersOf, Failed, pathOf, read } from "./session.js";
import { topicHead } from "./topicbar.js";

/** Each group takes a request of its own. */
const MOST_GROUPS = 200;
const AT_A_TIME = 4;

/** Lags of a group in the topic; none where it has committed nothing, or has gone meanwhile. */
async function lagsOf(cluster, group, topic, signal) {
  try {
    const { data } = await read(pathOf("v3", "clusters", cluster, "consumer-groups", group.consumer_group_id, "lags"), {}, signal);
    return data.filter((each) => each.topic_name === topic);
  } catch (error) {
    if (error instanceof Failed && error.problem.status === 404) return [];
    throw error;
  }
}

async function groupsOf(topic, signal) {
  const found = [];
  let left = 0;
  for (const cluster of await clustersOf(signal)) {
    const { data } = await read(pathOf("v3", "clusters", cluster, "consumer-groups"), {}, signal);
    const asked = data.slice(0, MOST_GROUPS);
    left += data.length - asked.length;
    const next = asked.values();
    const worker = async () => {
      for (const group of next) {
        const lags = await lagsOf(cluster, group, topic, signal);
        if (lags.length) found.push({ group, lags, lag: lags.reduce((sum, each) => sum + each.lag, 0) });
      }
    };
    await Promise.all(Array.from({ length: AT_A_TIME }, worker));
  }
  found.sort((one, other) => other.lag - one.lag || (one.group.consumer_group_id < other.group.consumer_group_id ? -1 : 1));
  return { found, left };
}

const stateOf = (group) => group.state.toLowerCase().replaceAll("_", " ");
const membersOf = (lags) => new Set(lags.map((each) => each.consumer_id).filter(Boolean)).size;

function inDetail({ group, lags }) {
  const name = group.consumer_group_id;
  const rows = [...lags].sort((one, other) => one.partition_id - other.partition_id);
  return element("details", {}, element("summary", {}, `${name} by partition`),
    table(`Lag of ${name}`, ["Partition", "Lag", "Committed", "End", "Client"], rows.map((each) => [each.partition_id, count(each.lag), count(each.current_offset), count(each.log_end_offset), each.client_id || "none"])));
}

function shown(topic, { found, left }) {
  const rest = left ? [hint(`${count(left)} more groups were not asked.`)] : [];
  if (!found.length) return [hint(`No consumer group has committed an offset of ${topic}. Keylane's job has none: its lag is that of the lanes.`), ...rest];
  const rows = found.map(({ group, lags, lag }) => [group.consumer_group_id, count(lag), stateOf(group), membersOf(lags), lags.length]);
  return [table("Consumer groups", ["Group", "Lag", "State", "Members here", "Partitions"], rows), ...rest, ...found.map(inDetail)];
}

export async function show(main, params, signal) {
  const topic = topicHead(main, params, "groups", (name) => `Consumer groups of ${name}`);
  if (!topic) return;
  const place = element("div", {}, reading());
  main.append(place);
  await guarded(place, async () => place.replaceChildren(...shown(topic, await groupsOf(topic, signal))));
}
