#!lua name=keylane
-- Keylane's lane protocol, server side. Layout of the records: keylane/codec.py.
-- The names carry the protocol's version: a node with an older library answers "Function not found",
-- and the writer loads this one. Every check comes before the first write: a call writes all or nothing.

-- Flags of the watermark, then of the envelope
local SUPERSEDED, INCOMPLETE, HAS_STRAYS = 1, 2, 4
local STRAY, TOMBSTONE, ORDER = 1, 2, 4
-- Lua's C stack holds 8,000 values at most; even, for keys and payloads stand in turn
local SLICE = 4000
-- Keys of an index that one call looks at because they may have expired, on top of one for each record
local DUE = 200
-- Times end here: doubles are exact up to it, and Redis takes it
local LATEST = 9007199254740991

local function encode(flags, next_offset, epoch, newest, complete, log_end)
  return struct.pack('>BBI8I8I8I8I8', 2, flags, next_offset, epoch, newest, complete, log_end)
end

-- flags, next offset, epoch, newest timestamp, complete as of, log end; or nil and an error's text
local function decode(data)
  if #data ~= 42 or string.byte(data, 1) ~= 2 then
    return nil, 'CORRUPT the watermark record has ' .. #data .. ' bytes'
  end
  local _, flags, next_offset, epoch, newest, complete, log_end = struct.unpack('>BBI8I8I8I8I8', data)
  return flags, next_offset, epoch, newest, complete, log_end
end

-- The lane's flags, next offset, newest timestamp, complete as of, unless a newer writer than this epoch has it;
-- or nil and the error reply.
local function own(watermark_key, epoch)
  local stored = redis.call('GET', watermark_key)
  if not stored then
    return nil, redis.error_reply('BEHIND -1')
  end
  local flags, next_offset, owner, newest, complete, log_end = decode(stored)
  if not flags then
    return nil, redis.error_reply(next_offset)
  end
  if owner > epoch then
    return nil, redis.error_reply(string.format('FENCED %.0f', owner))
  end
  return flags, next_offset, newest, complete, log_end
end

local function offset_of(payload)
  return (struct.unpack('>I8', payload, 3))
end

-- The command with as many arguments as there are, in as many calls as it takes; `head`: first of each.
local function in_slices(command, head, arguments)
  for i = 1, #arguments, SLICE do
    local last = math.min(i + SLICE - 1, #arguments)
    if head then
      redis.call(command, head, unpack(arguments, i, last))
    else
      redis.call(command, unpack(arguments, i, last))
    end
  end
end

-- In a slot that is moved key by key, what touches a key that is not here fails. So where one command does not
-- write it all, all keys are looked at before the first is written.

-- Writes of each key the last payload from offset `below` on, be it a set or a tombstone.
local function write(args, first, below, marker_ms)
  local last, names, sets, deleted = {}, {}, {}, {}
  for i = first, #args, 2 do
    if offset_of(args[i + 1]) >= below then
      last[args[i]] = args[i + 1]
    end
  end
  for key, payload in pairs(last) do
    names[#names + 1] = key
    if bit.band(string.byte(payload, 2), TOMBSTONE) ~= 0 then
      deleted[#deleted + 1] = key
    else
      sets[#sets + 1] = key
      sets[#sets + 1] = payload
    end
  end
  in_slices('EXISTS', nil, names)
  in_slices('MSET', nil, sets)
  if marker_ms == '0' then
    in_slices('DEL', nil, deleted)
  else
    for _, key in ipairs(deleted) do
      redis.call('SET', key, last[key], 'PX', marker_ms)
    end
  end
end

-- An envelope's parts; nil for what is none of ours. `source`: -1 is the lane's own partition; `order`: what
-- counts across partitions; `rest`: where headers, size or value begin.
local function parse(payload)
  if #payload < 18 or string.byte(payload, 1) ~= 1 then
    return nil
  end
  local flags = string.byte(payload, 2)
  local stray, ordered = bit.band(flags, STRAY) ~= 0, bit.band(flags, ORDER) ~= 0
  local rest = 19 + (stray and 4 or 0) + (ordered and 8 or 0)
  if #payload < rest - 1 then
    return nil
  end
  local time = struct.unpack('>I8', payload, 11)
  return {
    flags = flags,
    offset = offset_of(payload),
    time = time,
    source = stray and struct.unpack('>I4', payload, 19) or -1,
    order = ordered and struct.unpack('>I8', payload, rest - 8) or time,
    rest = rest,
    live = bit.band(flags, TOMBSTONE) == 0,
    payload = payload,
  }
end

-- What lies under a key, without its value; nil for nothing, and for what is overwritten as by SET.
local function held(key)
  local head = redis.pcall('GETRANGE', key, 0, 29)
  if type(head) == 'string' then
    return parse(head)
  elseif string.sub(head.err, 1, 9) ~= 'WRONGTYPE' then
    error(head)
  end
end

-- Offset, version, flags, timestamp, ...: the record as the log has it. An order timestamp is left out, for it
-- depends on how the log was cut into chunks, and a record read twice must be the same member.
local function history_member(record)
  local payload = record.payload
  local source = record.source >= 0 and string.sub(payload, 19, 22) or ''
  return string.sub(payload, 3, 10) .. string.char(1, bit.band(record.flags, bit.bnot(ORDER)))
    .. string.sub(payload, 11, 18) .. source .. string.sub(payload, record.rest)
end

-- The envelope with its order timestamp; a key that is gone keeps that alone.
local function stored(record)
  local flags, rest = bit.band(record.flags, bit.bnot(ORDER)), ''
  if record.live then
    rest = string.sub(record.payload, record.rest)
  else
    flags = bit.bor(bit.band(flags, STRAY), TOMBSTONE)
  end
  local order = ''
  if record.order > record.time then
    flags, order = bit.bor(flags, ORDER), struct.pack('>I8', record.order)
  end
  local source = record.source >= 0 and string.sub(record.payload, 19, 22) or ''
  return string.char(1, flags) .. string.sub(record.payload, 3, 18) .. source .. order .. rest
end

-- Whether a record may take the place of another: by offset within one partition; across partitions by order
-- timestamp, and at a tie the lane's own wins, then the lower partition.
local function is_newer(record, other)
  if record.source == other.source then
    return record.offset > other.offset
  end
  if record.order ~= other.order then
    return record.order > other.order
  end
  return record.source < other.source
end

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

-- KEYS: the lane's watermark. ARGV: epoch, from, to, newest timestamp ms, complete as of ms, log end (0: as
-- before), 1 when there are tombstones, the options' 8, then key and payload in turn, in offset order.
-- Applies the records of [from, to) that the lane does not have yet, and moves the watermark to `to`.
-- Returns the lane's next offset. Errors: FENCED epoch, BEHIND next offset (-1: no watermark), CORRUPT.
local function apply(keys, args)
  local epoch, from, to = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local newest, complete, log_end = tonumber(args[4]), tonumber(args[5]), tonumber(args[6])
  local flags, next_offset, newest_before, complete_before, log_end_before = own(keys[1], epoch)
  if not flags then
    return next_offset
  end
  if next_offset < from then
    return redis.error_reply(string.format('BEHIND %.0f', next_offset))
  end
  if args[9] == '1' or bit.band(flags, HAS_STRAYS) ~= 0 then
    merge(keys[1], args, 8, 16, next_offset)
  elseif next_offset < to then
    if args[7] == '1' or next_offset > from or #args > 15 + SLICE then
      write(args, 16, next_offset, args[8])
    elseif #args > 15 then
      redis.call('MSET', unpack(args, 16))
    end
  end
  if next_offset < to then
    next_offset = to
    newest_before = math.max(newest, newest_before)
  end
  redis.call('SET', keys[1], encode(flags, next_offset, epoch, newest_before,
    math.max(complete, complete_before), math.max(log_end, log_end_before)))
  return next_offset
end

-- KEYS: the watermark of the lane where readers look. ARGV: epoch, the options' 8, then key and payload in turn:
-- records of other partitions. Leaves the watermark where it is.
-- Returns 0. Errors: FENCED epoch, BEHIND -1 (no watermark), CORRUPT.
local function strays(keys, args)
  local epoch = tonumber(args[1])
  local flags, next_offset, newest, complete, log_end = own(keys[1], epoch)
  if not flags then
    return next_offset
  end
  merge(keys[1], args, 2, 10, 0)
  if bit.band(flags, HAS_STRAYS) == 0 then
    redis.call('SET', keys[1], encode(bit.bor(flags, HAS_STRAYS), next_offset, epoch, newest, complete, log_end))
  end
  return 0
end

-- KEYS: the lane's watermark. ARGV: epoch, the oldest offset that the log still has, 1 when a new lane has
-- lost records already.
-- Takes the lane for this epoch, and for readers again if it was superseded; a new lane begins at the oldest
-- offset, one whose next offset the log has lost goes on there and is marked incomplete.
-- Returns next offset, 1 when it is incomplete, 1 when it has met strays, complete as of ms.
-- Errors: FENCED epoch, CORRUPT.
local function open(keys, args)
  local epoch, oldest = tonumber(args[1]), tonumber(args[2])
  local stored = redis.call('GET', keys[1])
  local flags, next_offset, owner, newest, complete, log_end = tonumber(args[3]) * INCOMPLETE, oldest, 0, 0, 0, 0
  if stored then
    flags, next_offset, owner, newest, complete, log_end = decode(stored)
    if not flags then
      return redis.error_reply(next_offset)
    end
    if owner >= epoch then
      return redis.error_reply(string.format('FENCED %.0f', owner))
    end
    flags = bit.band(flags, bit.bnot(SUPERSEDED))
    if next_offset < oldest then
      flags, next_offset = bit.bor(flags, INCOMPLETE), oldest
    end
  end
  redis.call('SET', keys[1], encode(flags, next_offset, epoch, newest, complete, log_end))
  return { next_offset, bit.band(flags, INCOMPLETE) / INCOMPLETE, bit.band(flags, HAS_STRAYS) / HAS_STRAYS, complete }
end

-- KEYS: the lane's watermark. ARGV: epoch.
-- Tells readers of the lane that its generation is not the current one. Returns 1; 0 where there is no lane.
-- Errors: FENCED epoch, CORRUPT.
local function supersede(keys, args)
  local epoch = tonumber(args[1])
  if redis.call('EXISTS', keys[1]) == 0 then
    return 0
  end
  local flags, next_offset, newest, complete, log_end = own(keys[1], epoch)
  if not flags then
    return next_offset
  end
  redis.call('SET', keys[1], encode(bit.bor(flags, SUPERSEDED), next_offset, epoch, newest, complete, log_end))
  return 1
end

-- A topic's epoch counter: the last epoch given out (0: none) and the run that took it; or nil and the error.
local function last_epoch(key)
  local stored = redis.call('GET', key) or '0'
  local epoch, run = string.match(stored, '^(%d+) ?(.*)$')
  if not epoch then
    return nil, redis.error_reply('CORRUPT the epoch counter is no number')
  end
  return tonumber(epoch), run
end

-- KEYS: a topic's epoch counter. ARGV: the epoch that this run holds (-1: none yet), a number to go above, the
-- run's own name ('': it has none).
-- Returns an epoch higher than every one given out before. Errors: FENCED epoch when another run has taken one
-- since (a run's own, whose reply was lost, is no other's), CORRUPT.
local function take_epoch(keys, args)
  local expected, run = tonumber(args[1]), args[3]
  local last, owner = last_epoch(keys[1])
  if not last then
    return owner
  end
  if expected >= 0 and last > expected and (run == '' or run ~= owner) then
    return redis.error_reply(string.format('FENCED %.0f', last))
  end
  local epoch = math.max(last, tonumber(args[2])) + 1
  local name = string.format('%.0f', epoch)
  redis.call('SET', keys[1], run == '' and name or name .. ' ' .. run)
  return epoch
end

-- KEYS: a topic's epoch counter, layout record, writer's record. ARGV: epoch, the new layout record, the new
-- writer's record; of these, an empty one stays as it is. Returns 0. Errors: FENCED epoch, CORRUPT.
local function set_layout(keys, args)
  local last, fault = last_epoch(keys[1])
  if not last then
    return fault
  end
  if last > tonumber(args[1]) then
    return redis.error_reply(string.format('FENCED %.0f', last))
  end
  local changed = {}
  for i = 2, 3 do
    if args[i] ~= '' then
      changed[#changed + 1] = keys[i]
      changed[#changed + 1] = args[i]
    end
  end
  if #changed > 0 then
    redis.call('MSET', unpack(changed))
  end
  return 0
end

redis.register_function('keylane_apply_2', apply)
redis.register_function('keylane_strays_2', strays)
redis.register_function('keylane_open_2', open)
redis.register_function('keylane_supersede_2', supersede)
redis.register_function('keylane_epoch_2', take_epoch)
redis.register_function('keylane_layout_2', set_layout)
