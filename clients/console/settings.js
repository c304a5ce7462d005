/** A topic's settings: Kafka's, its partitions with their brokers, and what Keylane keeps of it. */

import { element, facts, hint, reading, table } from "./dom.js";
import { optionText } from "./format.js";
import { parse } from "./json.js";
import { guarded } from "./problem.js";
import { clustersOf, Failed, get, layoutOf, pathOf, read } from "./session.js";
import { topicHead } from "./topicbar.js";

/** REST Proxy's document of a topic has Kafka's settings. */
const REST_PROXY = { Accept: "application/vnd.kafka.v2+json" };

/** Where Kafka has a value from, by its names. */
const SOURCES = { DYNAMIC_TOPIC_CONFIG: "this topic", DYNAMIC_BROKER_CONFIG: "the broker, changed while it ran", DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, changed while they ran", STATIC_BROKER_CONFIG: "the broker's file", DEFAULT_CONFIG: "Kafka's default" };

/** Each setting with its source; null for those who may not ask the cluster. */
async function sourcesOf(topic, signal) {
  try {
    for (const cluster of await clustersOf(signal)) {
      try {
        return (await read(pathOf("v3", "clusters", cluster, "topics", topic, "configs"), {}, signal)).data;
      } catch (error) {
        if (!(error instanceof Failed) || error.problem.status !== 404) throw error;
      }
    }
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
  }
  return null;
}

/** Settings with where each is from; those from `own` come first. */
export function settingTable(caption, settings, own) {
  const sorted = [...settings].sort((one, other) => Number(one.source !== own) - Number(other.source !== own));
  return table(caption, ["Setting", "Value", "From"], sorted.map((each) => [element("code", {}, each.name), each.value ?? "–", SOURCES[each.source] ?? each.source]));
}

function kafkaSettings(configs, sources) {
  if (sources) return settingTable("Kafka's settings", sources, "DYNAMIC_TOPIC_CONFIG");
  const names = Object.keys(configs).sort();
  if (!names.length) return hint("Kafka does not show them: the service may not describe the topic's configuration (DescribeConfigs).");
  return table("Kafka's settings", ["Setting", "Value"], names.map((name) => [element("code", {}, name), configs[name] ?? "–"]));
}

const partitionTable = (partitions) =>
  table("Partitions", ["Partition", "Leader", "Replicas", "In sync", "Slot", "Shard"], partitions.map((each) => [each.partition, each.leader ?? "none", each.replicas.join(", "), each.in_sync.join(", "), each.slot ?? "–", each.shard ?? "–"]));

export async function show(main, params, signal) {
  const topic = topicHead(main, params, "settings", (name) => `Settings of ${name}`);
  if (!topic) return;
  const place = element("div", {}, reading());
  main.append(place);
  await guarded(place, async () => {
    const described = parse((await get(pathOf("topics", topic), { headers: REST_PROXY, signal })).text);
    const { partitions, state } = await read(pathOf("topics", topic, "partitions"), {}, signal);
    const sources = await sourcesOf(topic, signal);
    const layout = state === "kept" ? await layoutOf(topic, signal) : null;
    place.replaceChildren(
      element("h2", {}, "Keylane"),
      layout
        ? facts(Object.entries({ partitioner: layout.partitioner, partition_by: layout.partition_by, stripes: layout.stripes, generation: layout.generation, ...layout.options }).map(([name, value]) => [name, value === null ? null : optionText(name, value)]))
        : hint(state === "not-kept" ? "Keylane does not keep this topic: keylane.toml does not name it." : "Keylane's options are not known now."),
      element("h2", {}, "Kafka"), kafkaSettings(described.configs, sources),
      element("h2", {}, "Partitions"), partitionTable(partitions));
  });
}
