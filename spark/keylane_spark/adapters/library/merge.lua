-- Records that are compared with what is there, and the topic's options.

-- Keys of an index that one call looks at because they may have expired, on top of one for each record
local DUE = 200
-- Times end here: doubles are exact up to it, and Redis takes it
local LATEST = 9007199254740991

-- A topic's options with the names that follow from the watermark's. Their 8 arguments (see rules in lane.py): how
-- long a marker lasts, 1 where records are compared, length of `{tag}:T:g:v:`, time to live, how many records and
-- how long a history keeps, 1 where the first value stays, 1 for an index. Times in ms, 0 for none.
local function rules_of(watermark_key, args, at)
  local prefix = tonumber(args[at + 2])
  local base = string.sub(watermark_key, 1, prefix - 2)
  local has_index, has_history = args[at + 7] == '1', args[at + 4] ~= '0' or args[at + 5] ~= '0'
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
    history = has_history and base .. 'h:',
    index = has_index and key_of(watermark_key, prefix, 'i'),
    expiries = has_index and args[at + 3] ~= '0' and key_of(watermark_key, prefix, 'x'),
    past = has_index and has_history and key_of(watermark_key, prefix, 'p'),
    endings = has_index and args[at + 5] ~= '0' and key_of(watermark_key, prefix, 'q'),
  }
end

-- Names whose time is over by a sorted set of times (false: there is none), as far as they can be seen: keys whose
-- values have expired, or their histories.
local function due(times, now, count)
  local before = '(' .. string.format('%.0f', now)
  local names = times and redis.pcall('ZRANGEBYSCORE', times, '-inf', before, 'LIMIT', 0, count)
  return names and not names.err and names or {}
end

-- Drops what a history need not hold: all but the newest so many, and what is too old but for the newest of
-- those, which tells what held when the time kept begins. A key that is gone loses its history in the end, but
-- not before its marker: what comes late must find it. `size`: how many there are at most. Returns when the history
-- will be gone, nil: not by itself.
local function trim(key, size, rules)
  if rules.history_count > 0 and size > rules.history_count then
    redis.call('ZREMRANGEBYRANK', key, 0, -rules.history_count - 1)
  end
  if rules.history_age_ms > 0 then
    local horizon = '(' .. string.format('%.0f', rules.now - rules.history_age_ms)
    local old = size > 1 and redis.call('ZCOUNT', key, '-inf', horizon) or 0
    if old > 1 then
      redis.call('ZREMRANGEBYRANK', key, 0, old - 2)
    end
    local newest, time = unpack(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES'))
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

-- Whether a record may take the place of what an entry holds: by offset within one partition; across partitions
-- by order timestamp, and at a tie the lane's own wins, then the lower partition.
local function is_newer(offset, order, source, entry)
  if not entry.offset then
    return true
  elseif source == entry.source then
    return offset > entry.offset
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

-- What becomes of each key by the records from offset `below` on: key -> what it will hold, `payload` where that
-- is new. Reads all that will be touched, and writes nothing.
local function plan(args, first, below, rules)
  local entries = {}
  for i = first, #args, 2 do
    local key, payload = args[i], args[i + 1]
    local offset, time, order, source, live, rest = parse(payload)
    if offset >= below then
      local entry = entries[key]
      if not entry then
        local there, _, there_order, there_source, there_live = held(key)
        entry = { offset = there, order = there_order, source = there_source, live = there_live, payload = false }
        entries[key] = entry
      end
      if rules.history then
        add_to_history(entry, payload, time, source, rest)
      end
      local is_second = rules.insert_once and live and entry.live
      if not is_second and is_newer(offset, order, source, entry) then
        local is_due = rules.ttl_ms > 0 and time + rules.ttl_ms <= rules.now
        if source == entry.source and entry.order > order then
          payload = stored(payload, source, rest, entry.order, live and not is_due)
          order = entry.order
        elseif is_due or not live then
          payload = stored(payload, source, rest, order > time and order, false)
        end
        entry.offset, entry.order, entry.source, entry.live = offset, order, source, live and not is_due
        entry.time, entry.payload = time, payload
      end
    end
  end
  for key, entry in pairs(entries) do
    if entry.history then
      entry.history_key = rules.history .. string.sub(key, rules.prefix + 1)
      entry.history_size = redis.call('ZCARD', entry.history_key) + #entry.history / 2
    end
  end
  local others = { rules.index, rules.expiries, rules.past, rules.endings }
  for _, name in pairs(next(entries) and others or {}) do
    if name then
      redis.call('ZCARD', name)
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

-- Adds before it removes: a sorted set without members is no key any more.
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
  in_slices('ZADD', rules.index, added)
  in_slices('ZREM', rules.index, removed)
  if rules.expiries then
    in_slices('ZADD', rules.expiries, expiries)
    in_slices('ZREM', rules.expiries, removed)
  end
end

-- The index of all keys that have a history, be they there or not: reads as of a time go by it.
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
  in_slices('ZADD', rules.past, names)
  in_slices('ZREM', rules.past, removed)
  if rules.endings then
    in_slices('ZADD', rules.endings, ending)
    in_slices('ZREM', rules.endings, lasting)
    in_slices('ZREM', rules.endings, removed)
  end
end

-- Writes what is newer than what is there, by the topic's options: its arguments begin at `at`, the records'
-- at `first`.
local function merge(watermark_key, args, at, first, below)
  local rules = rules_of(watermark_key, args, at)
  local count = DUE + (#args - first + 1) / 2
  local expired, over = due(rules.expiries, rules.now, count), due(rules.endings, rules.now, count)
  local entries = plan(args, first, below, rules)
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
  end
  if rules.past then
    update_past(entries, rules, over)
  end
end
