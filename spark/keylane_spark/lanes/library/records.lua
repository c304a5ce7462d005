-- Envelopes: the bytes that precede a record's value.

local STRAY, TOMBSTONE, ORDER, FIELDS, COMPRESSED = 1, 2, 4, 32, 64
-- As many bytes of an envelope have its fields, in most topics.
local HEAD = 128

-- Returns the version of envelopes with these flags.
local function version_with(flags)
  if bit.band(flags, COMPRESSED) ~= 0 then
    return 0
  end
  return bit.band(flags, FIELDS) ~= 0 and 2 or 1
end

-- Returns an envelope's offset (nil: it is not an envelope), timestamp, order timestamp (which decides between
-- partitions), source partition (-1: the lane's own), whether it is a set, where headers, size or value begin, and what
-- it put into indexes of fields ('': nothing).
local function parse(payload)
  if #payload < 18 then
    return nil
  end
  local version, flags, offset, time = struct.unpack('>BBI8I8', payload)
  local source, order, rest, entries = -1, time, 19, ''
  if bit.band(flags, STRAY) ~= 0 then
    rest = 23
  end
  if bit.band(flags, ORDER) ~= 0 then
    rest = rest + 8
  end
  if version ~= version_with(flags) or #payload < rest - 1 then
    return nil
  end
  if bit.band(flags, STRAY) ~= 0 then
    source = struct.unpack('>I4', payload, 19)
  end
  if bit.band(flags, ORDER) ~= 0 then
    order = struct.unpack('>I8', payload, rest - 8)
  end
  if bit.band(flags, FIELDS) ~= 0 then
    if #payload < rest + 1 then
      return nil
    end
    local size = struct.unpack('>I2', payload, rest)
    rest = rest + 2 + size
    entries = string.sub(payload, rest - size, rest - 1)
    if #entries < size then
      return nil
    end
  end
  return offset, time, order, source, bit.band(flags, TOMBSTONE) == 0, rest, entries
end

-- Returns what is stored under a key, as `parse`; nil for nothing, and for other types, which a SET overwrites.
local function held(key)
  local head = redis.pcall('GETRANGE', key, 0, HEAD - 1)
  if type(head) == 'string' then
    local version, flags = string.byte(head, 1, 2)
    if #head == HEAD and bit.band(flags, FIELDS) ~= 0 and version == version_with(flags) then
      -- Fields that are longer: their size is in the first 32 bytes.
      local at = 19 + (bit.band(flags, STRAY) ~= 0 and 4 or 0) + (bit.band(flags, ORDER) ~= 0 and 8 or 0)
      local last = at + 1 + struct.unpack('>I2', head, at)
      if last > HEAD then
        head = redis.call('GETRANGE', key, 0, last - 1)
      end
    end
    return parse(head)
  elseif string.sub(head.err, 1, 9) ~= 'WRONGTYPE' then
    error(head)
  end
end

-- Returns a history's member: offset, version, flags, timestamp, ..., the record as the log has it. The order
-- timestamp is left out: it depends on the chunks, and a record that is read twice must give the same member. So are
-- fields: no index has records of the past.
local function history_member(payload, source, rest)
  local flags = string.byte(payload, 2)
  if bit.band(flags, ORDER + FIELDS) == 0 then
    return string.sub(payload, 3, 10) .. string.sub(payload, 1, 2) .. string.sub(payload, 11)
  end
  flags = bit.band(flags, bit.bnot(ORDER + FIELDS))
  return string.sub(payload, 3, 10) .. string.char(version_with(flags), flags) .. string.sub(payload, 11, 18)
    .. (source >= 0 and string.sub(payload, 19, 22) or '') .. string.sub(payload, rest)
end

-- Whether one member of a history is newer than another one of its timestamp and offset: the lane's own partition wins,
-- then the lower one, and a deletion against the set at its position.
local function is_newer_member(member, other)
  local function rank_of(one)
    local flags = string.byte(one, 10) or 0
    local is_stray = bit.band(flags, STRAY) ~= 0 and #one >= 22
    return is_stray and struct.unpack('>I4', one, 19) or -1, bit.band(flags, TOMBSTONE) ~= 0
  end
  local source, is_deletion = rank_of(member)
  local other_source, is_other_deletion = rank_of(other)
  if source ~= other_source then
    return source < other_source
  end
  return is_deletion and not is_other_deletion
end

-- Returns the envelope with this order timestamp, or without one (false). A deleted key keeps no value and no fields.
local function stored(payload, source, rest, order, live, entries)
  local flags, ordered, fields = bit.band(string.byte(payload, 2), bit.bnot(ORDER)), '', ''
  if not live then
    flags = bit.bor(bit.band(flags, STRAY), TOMBSTONE)
  elseif entries ~= '' then
    fields = struct.pack('>I2', #entries) .. entries
  end
  if order then
    flags, ordered = bit.bor(flags, ORDER), struct.pack('>I8', order)
  end
  return string.char(version_with(flags), flags) .. string.sub(payload, 3, 18)
    .. (source >= 0 and string.sub(payload, 19, 22) or '') .. ordered .. fields
    .. (live and string.sub(payload, rest) or '')
end
