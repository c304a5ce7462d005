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
