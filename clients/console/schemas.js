/** The schemas that a registry has for a topic's keys and values, to read. */

import { badge, element, reading } from "./dom.js";
import { parse, shown, write } from "./json.js";
import { guarded } from "./problem.js";
import { pathOf, read } from "./session.js";
import { topicHead } from "./topicbar.js";

/** Avro and JSON Schemas are JSON, Protobuf is a text of its own. */
function textOf({ type, schema }) {
  try {
    return type === "PROTOBUF" ? schema : write(parse(schema));
  } catch {
    return schema;
  }
}

function versionOf(subject, each, isNewest) {
  return element("details", { open: isNewest },
    element("summary", {}, `Version ${each.version} `, badge(each.type), ` id ${each.id}`),
    shown(textOf(each), `Version ${each.version} of ${subject}`));
}

export async function show(main, params, signal) {
  const topic = topicHead(main, params, "schemas", (name) => `Schemas of ${name}`);
  if (!topic) return;
  const place = element("div", {}, reading());
  main.append(place);
  await guarded(place, async () => {
    const { subjects } = await read(pathOf("topics", topic, "schemas"), {}, signal);
    if (!subjects.length) place.replaceChildren(element("p", {}, `No Schema Registry has a schema of ${topic}: its subjects would be `, element("code", {}, `${topic}-key`), " and ", element("code", {}, `${topic}-value`), "."));
    else place.replaceChildren(...subjects.map(({ subject, versions }) => element("section", { "aria-label": subject }, element("h2", {}, subject), versions.map((each, index) => versionOf(subject, each, index === 0)))));
  });
}
