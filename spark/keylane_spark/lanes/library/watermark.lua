-- The server side of the lane protocol. The files of this folder are loaded as one library, in the order of
-- function_library.py. The layouts of watermark records and envelopes are in keylane/state/codec.py.
-- The names of library and functions end in VERSION, a hash of these files: a node with another version replies
-- "Function not found", and the writer then loads this one beside it.
-- All checks come before the first write: a call writes everything or nothing.

-- The flags of functions that a full node must take: they remove, or replace records of a few bytes.
local FULL = { 'allow-oom' }

local function register(name, call, flags)
  redis.register_function {
    function_name = 'keylane_' .. name .. '_' .. VERSION, callback = call, flags = flags or {},
  }
end

local SUPERSEDED, INCOMPLETE, HAS_STRAYS, GAVE_STRAYS, MAY_LACK_STRAYS, MISSED_DELETIONS = 1, 2, 4, 8, 16, 32

-- Returns this node's time in ms.
local function time_ms()
  local seconds, micros = unpack(redis.call('TIME'))
  return tonumber(seconds) * 1000 + math.floor(tonumber(micros) / 1000)
end

-- A lane claims no completeness of the future, whatever the writer's clock says, or said when it was stored.
local function encode(flags, next_offset, epoch, newest, complete, log_end)
  return struct.pack('>BBI8I8I8I8I8', 2, flags, next_offset, epoch, newest, math.min(complete, time_ms()), log_end)
end

-- Returns flags, next offset, epoch, newest timestamp, complete as of, log end; or nil and the text of an error.
local function decode(data)
  if #data ~= 42 or string.byte(data, 1) ~= 2 then
    return nil, 'CORRUPT the watermark record has ' .. #data .. ' bytes'
  end
  local _, flags, next_offset, epoch, newest, complete, log_end = struct.unpack('>BBI8I8I8I8I8', data)
  return flags, next_offset, epoch, newest, complete, log_end
end

-- Checks that no newer writer than this epoch has the lane.
-- Returns flags, next offset, newest timestamp, complete as of, log end; or nil and an error reply.
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

-- Returns the lane's key of another kind, `{tag}:T:g:<kind>:<lane>`; `prefix`: the length before the lane's name.
local function key_of(watermark_key, prefix, kind)
  return string.sub(watermark_key, 1, prefix - 2) .. kind .. ':' .. string.sub(watermark_key, prefix + 1)
end

-- Returns the key of the last epoch that opened a lane of this generation in this slot, `{tag}:T:g:e`; `prefix`: as in
-- key_of.
local function writer_key_of(watermark_key, prefix)
  return string.sub(watermark_key, 1, prefix - 2) .. 'e'
end

-- Returns nil; or an error reply where a newer writer than this epoch has opened a lane of the generation in this slot.
local function newer_writer(writer_key, epoch)
  local writer = tonumber(redis.call('GET', writer_key) or 0)
  if writer > epoch then
    return redis.error_reply(string.format('FENCED %.0f', writer))
  end
end

-- Returns the id of this node's history of writes. A promoted replica begins another one, and so does a restarted
-- node: writes that were acknowledged before may then be lost.
local function lineage()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
end

-- Whether the lane is on another node than the one on which it was opened, or that node was restarted; `prefix`: the
-- length of `{tag}:T:g:w:`. If the lane came with its slot nothing is lost, as the next open will show.
local function has_failed_over(watermark_key, prefix)
  return redis.call('GET', key_of(watermark_key, tonumber(prefix), 'l')) ~= lineage()
end
