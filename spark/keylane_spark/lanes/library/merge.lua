-- Writes of records that are compared with what is stored, by the topic's options.

-- How many expired keys one call removes from an index, in addition to one for each record.
local DUE = 200
-- The latest time: doubles are exact up to it, and Redis accepts it.
local LATEST = 9007199254740991

-- Parses a topic's options, and derives the names of the lane's other keys. option_arguments.py names the arguments,
-- and makes the constants: MARKER_MS is 0.
-- `mixed`: whether the lane may have records of several partitions.
local function rules_of(watermark_key, args, at, mixed)
  local prefix = tonumber(args[at + PREFIX_BYTES])
  local base = string.sub(watermark_key, 1, prefix - 2)
  local parts = tonumber(args[at + INDEX_PARTS])
  local has_index, has_ttl, has_age = parts > 0, args[at + TTL_MS] ~= '0', args[at + HISTORY_AGE_MS] ~= '0'
  local has_history = has_age or args[at + HISTORY_COUNT] ~= '0'
  return {
    now = time_ms(),
    marker_ms = args[at + MARKER_MS],
    prefix = prefix,
    value_prefix = base .. 'v:',
    ttl_ms = tonumber(args[at + TTL_MS]),
    history_count = tonumber(args[at + HISTORY_COUNT]),
    history_age_ms = tonumber(args[at + HISTORY_AGE_MS]),
    insert_once = args[at + INSERT_ONCE] == '1',
    mixed = mixed,
    history = has_history and base .. 'h:',
    index = has_index and parts_of(key_of(watermark_key, prefix, 'i'), parts),
    expiries = has_index and has_ttl and parts_of(key_of(watermark_key, prefix, 'x'), parts),
    past = has_index and has_history and parts_of(key_of(watermark_key, prefix, 'p'), parts),
    endings = has_index and has_age and parts_of(key_of(watermark_key, prefix, 'q'), parts),
    fields = has_index and key_of(watermark_key, prefix, 'f') .. '.',
    entries = has_index and has_ttl and parts_of(key_of(watermark_key, prefix, 'b'), parts),
    parts = parts,
  }
end

-- Returns up to `count` names whose time has passed: keys whose values, or whose histories, have expired. `times`: the
-- parts of the sorted set that has them, false where there is none. The first parts may take all of `count`: it is
-- more than a call adds, so the others have their turn.
local function due(times, now, count)
  local before, names = '(' .. string.format('%.0f', now), {}
  for _, part in ipairs(times or {}) do
    local found = redis.pcall('ZRANGEBYSCORE', part, '-inf', before, 'LIMIT', 0, count - #names)
    for _, name in ipairs(found.err and {} or found) do
      names[#names + 1] = name
    end
  end
  return names
end

-- Returns a history's members with the timestamp and offset of the one at a rank (-1: the last), newest first, and the
-- rank of their last one. They are of several partitions, or a set and its deletion. Redis has them in the order of
-- their bytes, which depends on how values are stored; see rank_of_order in keylane/state/codec.py.
local function tied_at(key, rank)
  local function at(place)
    local member, time = unpack(redis.call('ZRANGE', key, place, place, 'WITHSCORES'))
    return member, member and time .. ' ' .. string.sub(member, 1, 8)
  end
  local member, own = at(rank)
  local tied, last = { member }, rank
  for step = -1, 1, 2 do
    local place = rank + step
    local other, order = at(place)
    while other and order == own and place < 0 do
      tied[#tied + 1], last, place = other, math.max(last, place), place + step
      other, order = at(place)
    end
  end
  if #tied > 1 then
    table.sort(tied, is_newer_member)
  end
  return tied, last
end

-- Removes all but the newest records of a history.
local function keep_newest(key, count, mixed)
  if mixed then
    local tied, last = tied_at(key, -count)
    local gone = {}
    for i = last + count + 2, #tied do
      gone[#gone + 1] = tied[i]
    end
    in_slices('ZREM', key, gone)
  end
  redis.call('ZREMRANGEBYRANK', key, 0, -count - 1)
end

-- Removes the records that a history need not keep: all but the newest `history_count`, and those too old but for the
-- newest of these, which was valid when the kept time begins. The history of a deleted key expires, but not before
-- its marker: late records must find it. `size`: at most how many records there are.
-- Returns when the history will expire; nil: never.
local function trim(key, size, rules)
  if rules.history_count > 0 and size > rules.history_count then
    keep_newest(key, rules.history_count, rules.mixed)
  end
  if rules.history_age_ms > 0 then
    local horizon = string.format('%.0f', rules.now - rules.history_age_ms)
    local old = size > 1 and redis.call('ZCOUNT', key, '-inf', '(' .. horizon) or 0
    if old > 1 then
      keep_newest(key, redis.call('ZCOUNT', key, horizon, '+inf') + 1, rules.mixed)
    end
    local newest, time = unpack(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES'))
    if rules.mixed then
      newest = tied_at(key, -1)[1]
    end
    local is_set = bit.band(string.byte(newest, 10) or 0, TOMBSTONE) == 0
    if is_set and rules.ttl_ms == 0 then
      redis.call('PERSIST', key)
    else
      local ends = tonumber(time) + rules.history_age_ms + (is_set and rules.ttl_ms or 0)
      ends = math.min(math.max(ends, rules.now + tonumber(rules.marker_ms)), LATEST)
      redis.call('PEXPIREAT', key, ends)
      return ends
    end
  end
end

-- Whether a record replaces what an entry holds. Within one partition offsets decide. Between partitions order
-- timestamps decide; at a tie the lane's own partition wins, then the lower one. A tombstone at the position of a set
-- is a deletion of that set (see carry).
local function is_newer(offset, order, source, live, entry)
  if not entry.offset then
    return true
  elseif source == entry.source then
    return offset > entry.offset or (offset == entry.offset and entry.live and not live)
  elseif order ~= entry.order then
    return order > entry.order
  end
  return source < entry.source
end

local function add_to_history(entry, payload, time, source, rest)
  local history = entry.history or {}
  history[#history + 1] = time
  history[#history + 1] = history_member(payload, source, rest)
  entry.history = history
end

-- Plans what the records from offset `below` on change. Returns key -> entry: what the key will hold, with a `payload`
-- where that changes. Reads every key that will be written, and writes nothing.
local function plan(args, first, below, rules)
  local entries = {}
  for i = first, #args, 2 do
    local key, payload = args[i], args[i + 1]
    local offset, time, order, source, live, rest, fields = parse(payload)
    if offset >= below then
      local entry = entries[key]
      if not entry then
        local there, _, there_order, there_source, there_live, _, there_fields = held(key)
        entry = { offset = there, order = there_order, source = there_source, live = there_live, payload = false }
        entry.fields_before = there and there_fields or fields_of_expired(string.sub(key, rules.prefix + 1), rules)
        entries[key] = entry
      end
      if rules.history then
        add_to_history(entry, payload, time, source, rest)
      end
      local is_second = rules.insert_once and live and entry.live
      if not is_second and is_newer(offset, order, source, live, entry) then
        local is_due = rules.ttl_ms > 0 and time + rules.ttl_ms <= rules.now
        if source == entry.source and entry.order > order then
          payload = stored(payload, source, rest, entry.order, live and not is_due, fields)
          order = entry.order
        elseif is_due or not live then
          payload = stored(payload, source, rest, order > time and order, false, '')
        end
        entry.offset, entry.order, entry.source, entry.live = offset, order, source, live and not is_due
        entry.time, entry.payload, entry.fields = time, payload, entry.live and fields or ''
      end
    end
  end
  for key, entry in pairs(entries) do
    if entry.history then
      entry.history_key = rules.history .. string.sub(key, rules.prefix + 1)
      entry.history_size = redis.call('ZCARD', entry.history_key) + #entry.history / 2
    end
  end
  return entries
end

local function put(key, entry, rules, sets)
  if entry.live and rules.ttl_ms > 0 then
    redis.call('SET', key, entry.payload, 'PXAT', math.min(entry.time + rules.ttl_ms, LATEST))
  elseif entry.live then
    sets[#sets + 1] = key
    sets[#sets + 1] = entry.payload
  elseif rules.marker_ms == '0' then
    redis.call('DEL', key)
  else
    redis.call('SET', key, entry.payload, 'PX', rules.marker_ms)
  end
end

-- Adds members before it removes others: an empty sorted set would be deleted.
local function update_index(entries, rules, expired)
  local added, expiries, removed = {}, {}, {}
  for _, name in ipairs(expired) do
    local entry = entries[rules.value_prefix .. name]
    if not (entry and entry.payload) then
      removed[#removed + 1] = name
    end
  end
  for key, entry in pairs(entries) do
    local name = string.sub(key, rules.prefix + 1)
    if entry.payload and entry.live then
      added[#added + 1] = 0
      added[#added + 1] = name
      if rules.expiries then
        expiries[#expiries + 1] = math.min(entry.time + rules.ttl_ms, LATEST)
        expiries[#expiries + 1] = name
      end
    elseif entry.payload then
      removed[#removed + 1] = name
    end
  end
  in_parts('ZADD', rules.index, added)
  in_parts('ZREM', rules.index, removed)
  if rules.expiries then
    in_parts('ZADD', rules.expiries, expiries)
    in_parts('ZREM', rules.expiries, removed)
  end
end

-- Updates the index of all keys that have a history, existing or deleted, which reads as of a time use.
local function update_past(entries, rules, over)
  local names, ending, lasting, removed = {}, {}, {}, {}
  for _, name in ipairs(over) do
    local entry = entries[rules.value_prefix .. name]
    if not (entry and entry.history) then
      removed[#removed + 1] = name
    end
  end
  for key, entry in pairs(entries) do
    local name = string.sub(key, rules.prefix + 1)
    if entry.history then
      names[#names + 1] = 0
      names[#names + 1] = name
    end
    if entry.history_ends then
      ending[#ending + 1] = entry.history_ends
      ending[#ending + 1] = name
    elseif entry.history then
      lasting[#lasting + 1] = name
    end
  end
  in_parts('ZADD', rules.past, names)
  in_parts('ZREM', rules.past, removed)
  if rules.endings then
    in_parts('ZADD', rules.endings, ending)
    in_parts('ZREM', rules.endings, lasting)
    in_parts('ZREM', rules.endings, removed)
  end
end

-- Writes the records that are newer than what is stored. The options' arguments begin at `at`, the records' at `first`.
-- `mixed`: whether the lane has strays.
local function merge(watermark_key, args, at, first, below, mixed)
  local rules = rules_of(watermark_key, args, at, mixed)
  local count = DUE + (#args - first + 1) / 2
  local expired, over = due(rules.expiries, rules.now, count), due(rules.endings, rules.now, count)
  local entries = plan(args, first, below, rules)
  local changes = rules.fields and field_changes(entries, rules, expired)
  if next(entries) or #expired + #over > 0 then
    for _, kind in ipairs({ 'index', 'expiries', 'past', 'endings' }) do
      for _, part in ipairs(rules[kind] or {}) do
        redis.call('ZCARD', part)
      end
    end
    if changes then
      look_at_fields(changes, rules)
    end
  end
  local sets = {}
  for key, entry in pairs(entries) do
    if entry.payload then
      put(key, entry, rules, sets)
    end
    if entry.history then
      in_slices('ZADD', entry.history_key, entry.history)
      entry.history_ends = trim(entry.history_key, entry.history_size, rules)
    end
  end
  in_slices('MSET', nil, sets)
  if rules.index then
    update_index(entries, rules, expired)
    update_fields(changes, rules)
  end
  if rules.past then
    update_past(entries, rules, over)
  end
end
