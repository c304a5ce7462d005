-- Envelopes: what stands before a record's value.

local STRAY, TOMBSTONE, ORDER = 1, 2, 4

local function offset_of(payload)
  return (struct.unpack('>I8', payload, 3))
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
