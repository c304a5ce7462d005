-- Envelopes: what stands before a record's value.

local STRAY, TOMBSTONE, ORDER = 1, 2, 4

-- An envelope's offset (nil: it is none of ours), timestamp, order timestamp (what counts across partitions),
-- source partition (-1: the lane's own), whether it is a set, and where headers, size or value begin.
local function parse(payload)
  if #payload < 18 then
    return nil
  end
  local version, flags, offset, time = struct.unpack('>BBI8I8', payload)
  local source, order, rest = -1, time, 19
  if bit.band(flags, STRAY) ~= 0 then
    rest = 23
  end
  if bit.band(flags, ORDER) ~= 0 then
    rest = rest + 8
  end
  if version ~= 1 or #payload < rest - 1 then
    return nil
  end
  if bit.band(flags, STRAY) ~= 0 then
    source = struct.unpack('>I4', payload, 19)
  end
  if bit.band(flags, ORDER) ~= 0 then
    order = struct.unpack('>I8', payload, rest - 8)
  end
  return offset, time, order, source, bit.band(flags, TOMBSTONE) == 0, rest
end

-- What lies under a key, as `parse`; nil for nothing, and for what is overwritten as by SET.
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
local function history_member(payload, source, rest)
  local flags = string.byte(payload, 2)
  if bit.band(flags, ORDER) == 0 then
    return string.sub(payload, 3, 10) .. string.sub(payload, 1, 2) .. string.sub(payload, 11)
  end
  return string.sub(payload, 3, 10) .. string.char(1, flags - ORDER) .. string.sub(payload, 11, 18)
    .. (source >= 0 and string.sub(payload, 19, 22) or '') .. string.sub(payload, rest)
end

-- The envelope with this order timestamp, or none (false); a key that is gone keeps the envelope alone.
local function stored(payload, source, rest, order, live)
  local flags, ordered = bit.band(string.byte(payload, 2), bit.bnot(ORDER)), ''
  if not live then
    flags = bit.bor(bit.band(flags, STRAY), TOMBSTONE)
  end
  if order then
    flags, ordered = bit.bor(flags, ORDER), struct.pack('>I8', order)
  end
  return string.char(1, flags) .. string.sub(payload, 3, 18) .. (source >= 0 and string.sub(payload, 19, 22) or '')
    .. ordered .. (live and string.sub(payload, rest) or '')
end
