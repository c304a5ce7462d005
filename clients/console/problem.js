/** A failure, and what to do about it. */

import { element, facts } from "./dom.js";
import { loadReference } from "./session.js";

const OWN = {
  "no-answer": "Check the address under Connection, and that the service runs: keylane status. Another origin must allow this page (CORS, and this page's Content-Security-Policy).",
};
/** What API Gateway or a proxy answers itself may name no type. */
const BY_STATUS = { 401: "unauthorized", 403: "forbidden", 413: "body-too-large", 429: "throttled", 502: "internal", 504: "timeout" };
const MEMBERS = ["code", "parameter", "next_offset", "log_end", "percent", "age_ms", "since_ms", "low", "high", "path", "instance"];

/** Show a failure as an element. Anything but a failed request is a fault of this page. */
export async function explain(error) {
  const { title, detail, status, ...more } = error.problem ?? { title: "This page failed", detail: String(error) };
  const { problems } = await loadReference().catch(() => ({ problems: {} }));
  const action = OWN[error.name] ?? problems[error.name || BY_STATUS[status]];
  return element(
    "section",
    { class: "problem", role: "alert" },
    element("h2", {}, title, status ? element("span", { class: "status" }, ` ${status}`) : null),
    detail && detail !== title ? element("p", {}, detail) : null,
    action && element("p", { class: "action" }, element("strong", {}, "What it means, and what to do: "), action),
    facts(MEMBERS.filter((name) => name in more).map((name) => [name, String(more[name].source ?? more[name])])),
  );
}

/** Run `task`; if it fails, show why in `place`. What was aborted is not shown. */
export async function guarded(place, task) {
  try {
    await task();
  } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(await explain(error));
  }
}
