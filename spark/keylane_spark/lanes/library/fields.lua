-- Indexes of fields: what the records of a call change in them. An envelope has what its record put there: entries of
-- number, length and value (state/field_index.py). A value that expires takes that along, so lanes whose records
-- expire have the same again in a hash (`b`), by key.

-- Adds the members of entries that `other` lacks to `sets`: number of the index -> arguments of ZADD (`with_scores`) or
-- ZREM. A member is the value, 00 and the record's key.
local function collect(sets, entries, other, name, with_scores)
  local has, at = {}, 1
  while at < #other do
    local last = at + 1 + string.byte(other, at + 1)
    has[string.sub(other, at, last)] = true
    at = last + 1
  end
  at = 1
  while at < #entries do
    local number, length = string.byte(entries, at, at + 1)
    local last = at + 1 + length
    local entry = string.sub(entries, at, last)
    if not has[entry] then
      local members = sets[number] or {}
      sets[number] = members
      if with_scores then
        members[#members + 1] = 0
      end
      members[#members + 1] = string.sub(entry, 3) .. '\0' .. name
    end
    at = last + 1
  end
end

-- Returns the entries of a key whose value has expired, '' for a key that has none.
local function fields_of_expired(name, rules)
  return rules.entries and redis.call('HGET', part_of(rules.entries, name), name) or ''
end

-- Plans what the entries of `plan` and the expired keys change: members by the numbers of their indexes, and fields of
-- the hash. It writes nothing.
local function field_changes(entries, rules, expired)
  local changes = { added = {}, removed = {}, kept = {}, gone = {} }
  for _, name in ipairs(expired) do
    local entry = entries[rules.value_prefix .. name]
    local before = not (entry and entry.payload) and fields_of_expired(name, rules) or ''
    if before ~= '' then
      collect(changes.removed, before, '', name, false)
      changes.gone[#changes.gone + 1] = name
    end
  end
  for key, entry in pairs(entries) do
    if entry.payload and entry.fields ~= entry.fields_before then
      local name = string.sub(key, rules.prefix + 1)
      collect(changes.removed, entry.fields_before, entry.fields, name, false)
      collect(changes.added, entry.fields, entry.fields_before, name, true)
      if entry.fields == '' then
        changes.gone[#changes.gone + 1] = name
      else
        changes.kept[name] = entry.fields
      end
    end
  end
  return changes
end

local function field_parts(number, rules)
  return parts_of(rules.fields .. number, rules.parts)
end

-- Looks at all keys that `update_fields` will write.
local function look_at_fields(changes, rules)
  for _, sets in ipairs({ changes.added, changes.removed }) do
    for number in pairs(sets) do
      for _, part in ipairs(field_parts(number, rules)) do
        redis.call('ZCARD', part)
      end
    end
  end
  if rules.entries and (next(changes.kept) or next(changes.gone)) then
    for _, part in ipairs(rules.entries) do
      redis.call('HLEN', part)
    end
  end
end

-- Adds members before it removes others: an empty sorted set would be deleted.
local function update_fields(changes, rules)
  for number, members in pairs(changes.added) do
    in_parts('ZADD', field_parts(number, rules), members)
  end
  for number, members in pairs(changes.removed) do
    in_parts('ZREM', field_parts(number, rules), members)
  end
  if rules.entries then
    for name, fields in pairs(changes.kept) do
      redis.call('HSET', part_of(rules.entries, name), name, fields)
    end
    for _, name in ipairs(changes.gone) do
      redis.call('HDEL', part_of(rules.entries, name), name)
    end
  end
end
