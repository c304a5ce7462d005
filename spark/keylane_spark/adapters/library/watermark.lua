#!lua name=keylane
-- Keylane's lane protocol, server side; the files of this folder are one library, in the order that
-- function_library.py names. Layout of the records: keylane/state/codec.py.
-- The names carry the protocol's version: a node with an older library answers "Function not found",
-- and the writer loads this one. Every check comes before the first write: a call writes all or nothing.

local SUPERSEDED, INCOMPLETE, HAS_STRAYS, GAVE_STRAYS = 1, 2, 4, 8

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

-- The lane's key of another kind: `{tag}:T:g:<kind>:<lane>`; `prefix`: length of all before the lane.
local function key_of(watermark_key, prefix, kind)
  return string.sub(watermark_key, 1, prefix - 2) .. kind .. ':' .. string.sub(watermark_key, prefix + 1)
end

-- What a node calls its history of writes. A replica that is promoted begins another one, and so does a node that
-- is started anew: what had been acknowledged before may be missing then.
local function lineage()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
end

-- Whether the lane lies on another node than the one that opened it, or on that one started anew; `prefix`: length
-- of `{tag}:T:g:w:`. It may have come with its slot, and nothing is lost then: who opens it sees.
local function has_failed_over(watermark_key, prefix)
  return redis.call('GET', key_of(watermark_key, tonumber(prefix), 'l')) ~= lineage()
end
