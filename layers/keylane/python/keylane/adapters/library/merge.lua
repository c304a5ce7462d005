-- Records that are compared with what is there, and the topic's options.

-- Keys of an index that one call looks at because they may have expired, on top of one for each record
local DUE = 200
-- Times end here: doubles are exact up to it, and Redis takes it
local LATEST = 9007199254740991

-- A topic's options: 8 arguments (see redis_lanes._rules), with the names that follow from the watermark's.
local function rules_of(watermark_key, args, at)
  local prefix = tonumber(args[at + 2])
  local base, lane = string.sub(watermark_key, 1, prefix - 2), string.sub(watermark_key, prefix + 1)
  local seconds, micros = unpack(redis.call('TIME'))
  return {
    now = tonumber(seconds) * 1000 + math.floor(tonumber(micros) / 1000),
    marker_ms = args[at],
    prefix = prefix,
    value_prefix = base .. 'v:',
    ttl_ms = tonumber(args[at + 3]),
    history_count = tonumber(args[at + 4]),
    history_age_ms = tonumber(args[at + 5]),
    insert_once = args[at + 6] == '1',
    history = (args[at + 4] ~= '0' or args[at + 5] ~= '0') and base .. 'h:',
    index = args[at + 7] == '1' and base .. 'i:' .. lane,
    expiries = args[at + 7] == '1' and args[at + 3] ~= '0' and base .. 'x:' .. lane,
  }
end

-- Keys of the index whose values have expired, as far as they can be seen.
local function due(rules, count)
  local names = rules.expiries
    and redis.pcall('ZRANGEBYSCORE', rules.expiries, '-inf', rules.now, 'LIMIT', 0, count)
  return names and not names.err and names or {}
end

-- Drops what a history need not hold: all but the newest so many, and what is too old but for the newest of
-- those, which tells what held when the time kept begins. A key that is gone loses its history in the end, but
-- not before its marker: what comes late must find it.
local function trim(key, rules)
  if rules.history_count > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, -rules.history_count - 1)
  end
  if rules.history_age_ms > 0 then
    local old = redis.call('ZCOUNT', key, '-inf', '(' .. string.format('%.0f', rules.now - rules.history_age_ms))
    if old > 1 then
      redis.call('ZREMRANGEBYRANK', key, 0, old - 2)
    end
    local newest, time = unpack(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES'))
    local is_set = bit.band(string.byte(newest, 10), TOMBSTONE) == 0
    if is_set and rules.ttl_ms == 0 then
      redis.call('PERSIST', key)
    else
      local ends = tonumber(time) + rules.history_age_ms + (is_set and rules.ttl_ms or 0)
      redis.call('PEXPIREAT', key, math.min(math.max(ends, rules.now + tonumber(rules.marker_ms)), LATEST))
    end
  end
end

-- What becomes of each key by the records from offset `below` on: name -> the record to keep (nil: what is there
-- stays), and what its history gets. Reads all that will be touched, and writes nothing.
local function plan(args, first, below, rules)
  local entries = {}
  for i = first, #args, 2 do
    local record = parse(args[i + 1])
    if record.offset >= below then
      local key = args[i]
      local entry = entries[key]
      if not entry then
        entry = { key = key, there = held(key), history = {} }
        entries[key] = entry
      end
      if rules.history then
        entry.history[#entry.history + 1] = record.time
        entry.history[#entry.history + 1] = history_member(record)
      end
      local there = entry.there
      local is_first = not (rules.insert_once and record.live and there and there.live)
      if is_first and (not there or is_newer(record, there)) then
        if there and there.source == record.source then
          record.order = math.max(record.order, there.order)
        end
        if rules.ttl_ms > 0 and record.time + rules.ttl_ms <= rules.now then
          record.live = false
        end
        entry.there, entry.kept = record, record
      end
    end
  end
  for key, entry in pairs(entries) do
    if rules.history then
      entry.history_key = rules.history .. string.sub(key, rules.prefix + 1)
      redis.call('ZCARD', entry.history_key)
    end
  end
  if rules.index and next(entries) then
    redis.call('ZCARD', rules.index)
  end
  if rules.expiries and next(entries) then
    redis.call('ZCARD', rules.expiries)
  end
  return entries
end

local function put(entry, rules, sets)
  local key, record = entry.key, entry.kept
  if record.live and rules.ttl_ms > 0 then
    redis.call('SET', key, stored(record), 'PXAT', math.min(record.time + rules.ttl_ms, LATEST))
  elseif record.live then
    sets[#sets + 1] = key
    sets[#sets + 1] = stored(record)
  elseif rules.marker_ms == '0' then
    redis.call('DEL', key)
  else
    redis.call('SET', key, stored(record), 'PX', rules.marker_ms)
  end
end

-- Adds before it removes: a sorted set without members is no key any more.
local function update_index(entries, rules, expired)
  local added, expiries, removed = {}, {}, {}
  for _, name in ipairs(expired) do
    local entry = entries[rules.value_prefix .. name]
    if not (entry and entry.kept) then
      removed[#removed + 1] = name
    end
  end
  for key, entry in pairs(entries) do
    local name = string.sub(key, rules.prefix + 1)
    if entry.kept and entry.kept.live then
      added[#added + 1] = 0
      added[#added + 1] = name
      if rules.expiries then
        expiries[#expiries + 1] = math.min(entry.kept.time + rules.ttl_ms, LATEST)
        expiries[#expiries + 1] = name
      end
    elseif entry.kept then
      removed[#removed + 1] = name
    end
  end
  in_slices('ZADD', rules.index, added)
  in_slices('ZREM', rules.index, removed)
  if rules.expiries then
    in_slices('ZADD', rules.expiries, expiries)
    in_slices('ZREM', rules.expiries, removed)
  end
end

-- Writes what is newer than what is there, by the topic's options; first: of the arguments, at: of its options.
local function merge(watermark_key, args, at, first, below)
  local rules = rules_of(watermark_key, args, at)
  local expired = due(rules, DUE + (#args - first + 1) / 2)
  local entries = plan(args, first, below, rules)
  local sets = {}
  for _, entry in pairs(entries) do
    if entry.kept then
      put(entry, rules, sets)
    end
    if rules.history then
      in_slices('ZADD', entry.history_key, entry.history)
      trim(entry.history_key, rules)
    end
  end
  in_slices('MSET', nil, sets)
  if rules.index then
    update_index(entries, rules, expired)
  end
end
