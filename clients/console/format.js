/** Numbers, ages and times as people read them. */

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (number) => (number === null || number === undefined ? "–" : COUNT.format(number));
export const short = (number) =>
  number === null || number === undefined ? "–" : number < 10_000 ? COUNT.format(number) : SHORT.format(number);
export const rate = (perSecond) => (perSecond === null ? "–" : `${short(perSecond)}/s`);

/** A size in Redis; of its units each is 1024 times the one before. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), 4);
  return `${(bytes / 1024 ** power).toFixed(power && bytes / 1024 ** power < 100 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

export function age(ms) {
  if (ms === null || ms === undefined) return "unknown";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}

/** UTC, to the millisecond: two people on two continents compare the same digits. */
export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  const moment = new Date(Number(ms));
  return Number.isNaN(moment.getTime()) ? String(ms) : moment.toISOString().replace("T", " ").replace("Z", " UTC");
}

/** Bytes as `xxd` shows them; of many, the first. */
export function hexdump(bytes, shown = 2048) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, shown); at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const hex = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n") + (bytes.length > shown ? `\n... ${bytes.length} bytes in all` : "");
}

/** A window's start: without the time of day if that is midnight. */
export function day(ms) {
  const text = new Date(Number(ms)).toISOString();
  return text.endsWith("T00:00:00.000Z") ? text.slice(0, 10) : text.slice(0, 16).replace("T", " ");
}

/** An option of a topic; fields and indexes are lists of pairs. */
export const optionText = (name, value) => (name === "fields" || name === "indexes" ? value.map(([each, of]) => `${each} (${Array.isArray(of) ? of.join(", ") : of})`).join(", ") : String(value));
