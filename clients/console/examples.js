/** Examples of requests name topics and views of the documentation. Here they name those that the service has. */

import { Failed, read } from "./session.js";
import { lastTopic } from "./topicbar.js";

/** What a list has, by a part of each; empty where it can not be read. */
async function listed(path, list, name, signal) {
  try {
    return (await read(path, {}, signal))[list].map((each) => each[name]);
  } catch (error) {
    if (error instanceof Failed) return [];
    throw error;
  }
}

async function topicsOf(signal) {
  const names = (await listed("/topics", "topics", "topic", signal)).filter((each) => !each.startsWith("_"));
  return lastTopic() ? [lastTopic(), ...names.filter((each) => each !== lastTopic())] : names;
}

/** A push names its topics in its body. */
function inBody(body, topic) {
  const document = JSON.parse(body);
  for (const each of document.records) each.topic = topic;
  return JSON.stringify(document);
}

/** An operation's example; of another topic or view, it has neither the example's keys nor its bounds. */
export async function exampleOf({ id, example, parameters }, signal) {
  const { path = {}, query = {}, body, type } = example ?? {};
  const uses = (place, name) => parameters.some((each) => each.in === place && each.name === name);
  const fitted = { path: { ...path }, query: { ...query }, body, type };
  if (uses("path", "topic") || uses("query", "topic") || uses("query", "topics") || id === "push") {
    const topics = await topicsOf(signal);
    const named = path.topic ?? query.topic ?? query.topics ?? JSON.parse(body ?? "{}").records?.[0].topic;
    if (topics.length && !named?.split(",").every((each) => topics.includes(each))) {
      fitted.query = { ...(uses("query", "topic") && { topic: topics[0] }), ...(uses("query", "topics") && { topics: topics.slice(0, 2).join(",") }) };
      fitted.path = { ...(path.topic && { topic: topics[0] }), ...(path.partition && { partition: "0" }) };
      if (id === "push") fitted.body = inBody(body, topics[0]);
    }
  }
  if (uses("path", "view")) {
    const views = await listed("/views", "views", "view", signal);
    if (views.length && !views.includes(path.view)) [fitted.path, fitted.query] = [{ view: views[0] }, {}];
  }
  if (uses("path", "cluster")) fitted.path.cluster = (await listed("/clusters", "clusters", "cluster_id", signal))[0] ?? path.cluster;
  return fitted;
}
