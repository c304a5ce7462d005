-- Writes of records that are not compared with what is stored.

-- Lua's C stack holds at most 8,000 values. Even, because keys and payloads alternate.
local SLICE = 4000

-- Runs a command with any number of arguments, in as many calls as it takes; `head`: first argument of each.
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

-- Returns the keys of a lane's sorted set. With an index in parts each has a number behind it: a slot migrates key by
-- key, so none may grow with the lane.
local function parts_of(key, count)
  local keys = { key }
  for part = 1, count > 1 and count or 0 do
    keys[part] = key .. '.' .. part - 1
  end
  return keys
end

-- Returns the part that a member is in: its hash names it.
local function part_of(parts, member)
  if #parts == 1 then
    return parts[1]
  end
  return parts[tonumber(string.sub(redis.sha1hex(member), 1, 8), 16) % #parts + 1]
end

-- As in_slices, for a sorted set in parts.
local function in_parts(command, parts, arguments)
  if #parts == 1 then
    return in_slices(command, parts[1], arguments)
  end
  local width, by_part = command == 'ZADD' and 2 or 1, {}
  for last = width, #arguments, width do
    local part = part_of(parts, arguments[last])
    local own = by_part[part] or {}
    by_part[part] = own
    for i = last - width + 1, last do
      own[#own + 1] = arguments[i]
    end
  end
  for part, own in pairs(by_part) do
    in_slices(command, part, own)
  end
end

-- In a migrating slot a command fails when it names a key that has left. So where more than one command writes, all
-- keys are read before the first is written.

-- Writes the last payload of each key, set or tombstone.
local function write(args, first, marker_ms)
  local last, names, sets, deleted = {}, {}, {}, {}
  for i = first, #args, 2 do
    last[args[i]] = args[i + 1]
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
  -- What makes room goes first.
  if marker_ms == '0' then
    in_slices('DEL', nil, deleted)
  else
    for _, key in ipairs(deleted) do
      redis.call('SET', key, last[key], 'PX', marker_ms)
    end
  end
  in_slices('MSET', nil, sets)
end
