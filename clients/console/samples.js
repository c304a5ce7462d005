/** What the page has seen of topics over time: rates are differences of two samples. */

const KEPT = 90;
/** Lanes may be many: only so many samples keep them. */
const KEPT_LANES = 6;
const seen = new Map();

/** The log's end as far as the job has seen it; before that, what is applied. */
const endOf = (lane) => Number(lane.log_end ?? lane.next_offset ?? 0);

/** Take a sample of a topic as the list of topics has it: its totals, without lanes. */
export function takeTotals(topic, { generation, lag, age_ms: age, log_end: end }, now = performance.now()) {
  return keep(topic, { at: now, generation, lag: lag ?? null, age: age ?? null, end, lanes: null });
}

export function takeSample(layout, now = performance.now()) {
  const lanes = new Map(layout.lanes.map((lane) => [`${lane.partition}.${lane.stripe}`, endOf(lane)]));
  const ends = new Map(layout.lanes.map((lane) => [lane.partition, 0]));
  for (const lane of layout.lanes) ends.set(lane.partition, Math.max(ends.get(lane.partition), endOf(lane)));
  const end = [...ends.values()].reduce((sum, each) => sum + each, 0);
  return keep(layout.topic, { at: now, generation: layout.generation, lag: layout.lag ?? null, age: layout.age_ms ?? null, end, lanes });
}

function keep(topic, sample) {
  const list = seen.get(topic) ?? [];
  // Another generation may have other lanes: differences across it mean nothing.
  if (list.length && list.at(-1).generation !== sample.generation) list.length = 0;
  list.push(sample);
  if (list.length > KEPT_LANES) list.at(-KEPT_LANES - 1).lanes = null;
  if (list.length > KEPT) list.shift();
  seen.set(topic, list);
  return list;
}

const perSecond = (before, after, from, to) => (to > from ? Math.max(0, ((after - before) * 1000) / (to - from)) : 0);

/** Records a second between each two samples. */
export function rates(list) {
  return list.slice(1).map((each, index) => perSecond(list[index].end, each.end, list[index].at, each.at));
}

/** Lane -> records a second over the last samples; empty with one sample. */
export function laneRates(list) {
  const known = list.slice(-KEPT_LANES).filter((each) => each.lanes);
  if (known.length < 2) return new Map();
  const [first, last] = [known[0], known.at(-1)];
  return new Map([...last.lanes].map(([name, end]) => [name, perSecond(first.lanes.get(name) ?? end, end, first.at, last.at)]));
}

/** A lane is hot if it gets more than twice the mean, and at least a record a second. */
export function hotLanes(byLane) {
  const mean = [...byLane.values()].reduce((sum, each) => sum + each, 0) / (byLane.size || 1);
  return new Set([...byLane].filter(([, each]) => each >= 1 && each > 2 * mean).map(([name]) => name));
}
