-- Records that need no look at what is there.

-- Lua's C stack holds 8,000 values at most; even, for keys and payloads stand in turn
local SLICE = 4000

-- The command with as many arguments as there are, in as many calls as it takes; `head`: first of each.
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

-- In a slot that is moved key by key, what touches a key that is not here fails. So where one command does not
-- write it all, all keys are looked at before the first is written.

-- Writes of each key the last payload, be it a set or a tombstone.
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
  in_slices('MSET', nil, sets)
  if marker_ms == '0' then
    in_slices('DEL', nil, deleted)
  else
    for _, key in ipairs(deleted) do
      redis.call('SET', key, last[key], 'PX', marker_ms)
    end
  end
end
