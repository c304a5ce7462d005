/** Kafka's clusters with their brokers, and what each broker is set to. */

import { badge, element, facts, reading, table } from "./dom.js";
import { guarded } from "./problem.js";
import { pathOf, read } from "./session.js";
import { settingTable } from "./settings.js";
import { clusterTabs } from "./topicbar.js";

/** The settings of a broker: read once somebody opens them. */
function brokerSettings(cluster, { id }, signal) {
  const place = element("div", {}, reading());
  const details = element("details", { data: { loads: "" } }, element("summary", {}, `Settings of broker ${id}`), place);
  details.addEventListener("toggle", () => guarded(place, async () => {
    const { data } = await read(pathOf("v3", "clusters", cluster, "brokers", id, "configs"), {}, signal);
    place.replaceChildren(settingTable(`Settings of broker ${id}`, data, "DYNAMIC_BROKER_CONFIG"));
  }), { once: true });
  return details;
}

function clusterOf({ name, cluster_id: id, controller, brokers, why }, signal) {
  const rows = brokers.map((each) => [each.id, `${each.host}:${each.port}`, each.rack ?? "–", each.id === controller ? badge("controller") : "–"]);
  return element("section", { "aria-label": `Cluster ${name}` },
    element("h2", {}, `Cluster ${name} `, badge(why ? "no answer" : "ready", why ? "bad" : "good")),
    why && element("p", {}, why),
    facts([["Id", id], ["Brokers", why ? null : String(brokers.length)]]),
    brokers.length > 0 && table(`Brokers of ${name}`, ["Broker", "Address", "Rack", "Role"], rows),
    brokers.map((each) => brokerSettings(id, each, signal)));
}

export async function show(main, params, signal) {
  const place = element("div", {}, reading());
  main.append(element("h1", {}, "Brokers"), clusterTabs("brokers"), place);
  await guarded(place, async () => {
    const { clusters } = await read("/clusters", {}, signal);
    place.replaceChildren(...clusters.map((each) => clusterOf(each, signal)));
  });
}
