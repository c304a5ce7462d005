-- Envelopes: the bytes that precede a record's value.

local STRAY, TOMBSTONE, ORDER = 1, 2, 4

-- Returns an envelope's offset (nil: it is not an envelope), timestamp, order timestamp (which decides between
-- partitions), source partition (-1: the lane's own), whether it is a set, and where headers, size or value begin.
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

-- Returns what is stored under a key, as `parse`; nil for nothing, and for other types, which a SET overwrites.
local function held(key)
  local head = redis.pcall('GETRANGE', key, 0, 29)
  if type(head) == 'string' then
    return parse(head)
  elseif string.sub(head.err, 1, 9) ~= 'WRONGTYPE' then
    error(head)
  end
end

-- Returns a history's member: offset, version, flags, timestamp, ..., the record as the log has it. The order
-- timestamp is left out: it depends on the chunks, and a record that is read twice must give the same member.
local function history_member(payload, source, rest)
  local flags = string.byte(payload, 2)
  if bit.band(flags, ORDER) == 0 then
    return string.sub(payload, 3, 10) .. string.sub(payload, 1, 2) .. string.sub(payload, 11)
  end
  return string.sub(payload, 3, 10) .. string.char(1, flags - ORDER) .. string.sub(payload, 11, 18)
    .. (source >= 0 and string.sub(payload, 19, 22) or '') .. string.sub(payload, rest)
end

-- Returns the envelope with this order timestamp, or without one (false). A deleted key keeps no value.
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
