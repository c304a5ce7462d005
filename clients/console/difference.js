/** What differs between two JSON values, by path. */

import { Digits, same } from "./json.js";

const isTree = (value) => value !== null && typeof value === "object" && !(value instanceof Digits);

/** Changes from `before` to `after`: {path, before, after}, where undefined means "was not there". */
export function changes(before, after, path = "") {
  if (before !== undefined && after !== undefined && same(before, after)) return [];
  if (!isTree(before) || !isTree(after) || Array.isArray(before) !== Array.isArray(after)) return [{ path: path || "value", before, after }];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.flatMap((name) => {
    const inner = Array.isArray(after) ? `${path}[${name}]` : path ? `${path}.${name}` : name;
    if (!(name in before)) return [{ path: inner, before: undefined, after: after[name] }];
    if (!(name in after)) return [{ path: inner, before: before[name], after: undefined }];
    return changes(before[name], after[name], inner);
  });
}
