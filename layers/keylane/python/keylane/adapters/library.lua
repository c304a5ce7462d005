#!lua name=keylane
-- Keylane's lane protocol, server side. Layout of the records: keylane/codec.py.
-- The names carry the protocol's version: a node with an older library answers "Function not found",
-- and the writer loads this one. Every check comes before the first write: a call writes all or nothing.

-- Flags of the watermark, then of the envelope
local SUPERSEDED, INCOMPLETE, HAS_STRAYS = 1, 2, 4
local STRAY, TOMBSTONE = 1, 2
-- Lua's C stack holds 8,000 values at most
local SLICE = 4000

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

local function is_tombstone(payload)
  return bit.band(string.byte(payload, 2), TOMBSTONE) ~= 0
end

local function offset_of(payload)
  return (struct.unpack('>I8', payload, 3))
end

-- Writes key and payload pairs in their order: runs of sets and runs of tombstones, each in one command.
local function write_in_order(args, first, below)
  local run, deleting = {}, false
  local function flush()
    if #run > 0 then
      redis.call(deleting and 'DEL' or 'MSET', unpack(run))
      run = {}
    end
  end
  for i = first, #args, 2 do
    local payload = args[i + 1]
    if offset_of(payload) >= below then
      local tombstone = is_tombstone(payload)
      if tombstone ~= deleting or #run >= SLICE then
        flush()
        deleting = tombstone
      end
      run[#run + 1] = args[i]
      if not tombstone then
        run[#run + 1] = payload
      end
    end
  end
  flush()
end

-- Timestamp, source partition (-1: the lane's own), offset
local function order_of(payload)
  local source = -1
  if bit.band(string.byte(payload, 2), STRAY) ~= 0 then
    source = struct.unpack('>I4', payload, 19)
  end
  return struct.unpack('>I8', payload, 11), source, offset_of(payload)
end

-- Whether what lies there is a record of ours: anything else is overwritten, as SET and MSET do.
local function is_record(there)
  return type(there) == 'string' and #there >= 18
    and (bit.band(string.byte(there, 2), STRAY) == 0 or #there >= 22)
end

-- Whether a record may take the place of another: by offset within one partition; across partitions by
-- timestamp, and at a tie the lane's own wins, then the lower partition.
local function is_newer(payload, than)
  local time, source, offset = order_of(payload)
  local other_time, other_source, other_offset = order_of(than)
  if source == other_source then
    return offset > other_offset
  end
  if time ~= other_time then
    return time > other_time
  end
  return source < other_source
end

-- Writes what is newer than what is there. A tombstone leaves a marker, so that nothing older comes back
-- from another partition while it lasts.
local function write_if_newer(args, first, below, marker_ms)
  for i = first, #args, 2 do
    local payload = args[i + 1]
    if offset_of(payload) >= below then
      -- Another type under the key is an error of GET, which must not end the call half done.
      local there = redis.pcall('GET', args[i])
      if not is_record(there) or is_newer(payload, there) then
        if is_tombstone(payload) and marker_ms == '0' then
          redis.call('DEL', args[i])
        elseif is_tombstone(payload) then
          redis.call('SET', args[i], payload, 'PX', marker_ms)
        else
          redis.call('SET', args[i], payload)
        end
      end
    end
  end
end

-- KEYS: the lane's watermark. ARGV: epoch, from, to, newest timestamp ms, complete as of ms, log end (0: as
-- before), 1 when there are tombstones, how long a tombstone's marker lasts in ms, then key and payload in
-- turn, in offset order.
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
  if next_offset < to then
    if bit.band(flags, HAS_STRAYS) ~= 0 then
      write_if_newer(args, 9, next_offset, args[8])
    elseif args[7] == '1' or next_offset > from then
      write_in_order(args, 9, next_offset)
    else
      for i = 9, #args, SLICE do
        redis.call('MSET', unpack(args, i, math.min(i + SLICE - 1, #args)))
      end
    end
    next_offset = to
    newest_before = math.max(newest, newest_before)
  end
  redis.call('SET', keys[1], encode(flags, next_offset, epoch, newest_before,
    math.max(complete, complete_before), math.max(log_end, log_end_before)))
  return next_offset
end

-- KEYS: the watermark of the lane where readers look. ARGV: epoch, how long a tombstone's marker lasts in
-- ms, then key and payload in turn: records of other partitions. Leaves the watermark where it is.
-- Returns 0. Errors: FENCED epoch, BEHIND -1 (no watermark), CORRUPT.
local function strays(keys, args)
  local epoch = tonumber(args[1])
  local flags, next_offset, newest, complete, log_end = own(keys[1], epoch)
  if not flags then
    return next_offset
  end
  if bit.band(flags, HAS_STRAYS) == 0 then
    redis.call('SET', keys[1], encode(bit.bor(flags, HAS_STRAYS), next_offset, epoch, newest, complete, log_end))
  end
  write_if_newer(args, 3, 0, args[2])
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
