#!lua name=keylane
-- Keylane's lane protocol, server side. Layout of the records: keylane/codec.py.
-- The names carry the protocol's version: a node with an older library answers "Function not found",
-- and the writer loads this one. Every check comes before the first write: a call writes all or nothing.

local INCOMPLETE = 2
local TOMBSTONE = 2
-- Lua's C stack holds 8,000 values at most
local SLICE = 4000

local function encode(flags, next_offset, epoch, newest, complete)
  return struct.pack('>BBI8I8I8I8', 1, flags, next_offset, epoch, newest, complete)
end

-- flags, next offset, epoch, newest timestamp, complete as of; or nil and an error's text
local function decode(data)
  if #data ~= 34 or string.byte(data, 1) ~= 1 then
    return nil, 'CORRUPT the watermark record has ' .. #data .. ' bytes'
  end
  local _, flags, next_offset, epoch, newest, complete = struct.unpack('>BBI8I8I8I8', data)
  return flags, next_offset, epoch, newest, complete
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

-- KEYS: the lane's watermark. ARGV: epoch, from, to, newest timestamp ms, complete as of ms,
-- 1 when there are tombstones, then key and payload in turn, in offset order.
-- Applies the records of [from, to) that the lane does not have yet, and moves the watermark to `to`.
-- Returns the lane's next offset. Errors: FENCED epoch, BEHIND next offset (-1: no watermark), CORRUPT.
local function apply(keys, args)
  local epoch, from, to = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local newest, complete = tonumber(args[4]), tonumber(args[5])
  local stored = redis.call('GET', keys[1])
  if not stored then
    return redis.error_reply('BEHIND -1')
  end
  local flags, next_offset, owner, newest_before, complete_before = decode(stored)
  if not flags then
    return redis.error_reply(next_offset)
  end
  if owner > epoch then
    return redis.error_reply(string.format('FENCED %.0f', owner))
  end
  if next_offset < from then
    return redis.error_reply(string.format('BEHIND %.0f', next_offset))
  end
  if next_offset < to then
    if args[6] == '1' or next_offset > from then
      write_in_order(args, 7, next_offset)
    else
      for i = 7, #args, SLICE do
        redis.call('MSET', unpack(args, i, math.min(i + SLICE - 1, #args)))
      end
    end
    next_offset = to
    newest_before = math.max(newest, newest_before)
  end
  redis.call('SET', keys[1],
    encode(flags, next_offset, epoch, newest_before, math.max(complete, complete_before)))
  return next_offset
end

-- KEYS: the lane's watermark. ARGV: epoch, the oldest offset that the log still has.
-- Takes the lane for this epoch; a new lane begins at that offset, one whose next offset the log has
-- lost goes on there and is marked incomplete. Returns next offset, and 1 when it is incomplete.
-- Errors: FENCED epoch, CORRUPT.
local function open(keys, args)
  local epoch, oldest = tonumber(args[1]), tonumber(args[2])
  local stored = redis.call('GET', keys[1])
  if not stored then
    redis.call('SET', keys[1], encode(0, oldest, epoch, 0, 0))
    return { oldest, 0 }
  end
  local flags, next_offset, owner, newest, complete = decode(stored)
  if not flags then
    return redis.error_reply(next_offset)
  end
  if owner >= epoch then
    return redis.error_reply(string.format('FENCED %.0f', owner))
  end
  if next_offset < oldest then
    flags, next_offset = bit.bor(flags, INCOMPLETE), oldest
  end
  redis.call('SET', keys[1], encode(flags, next_offset, epoch, newest, complete))
  return { next_offset, bit.band(flags, INCOMPLETE) / INCOMPLETE }
end

redis.register_function('keylane_apply_1', apply)
redis.register_function('keylane_open_1', open)
