-- What a full node still takes, one that has reached `maxmemory`: chunks that need no more room than they give free.
-- Without these a deletion would wait for the room that it makes. They are called once the usual function was refused.

-- What a key takes beside its value, about.
local ENTRY = 100

-- What the fields of a record take in indexes, about: nothing where they are the stored ones.
local function fields_growth(key, payload)
  if bit.band(string.byte(payload, 2), FIELDS) == 0 then
    return 0
  end
  local _, _, _, _, _, _, before = held(key)
  local _, _, _, _, _, _, fields = parse(payload)
  local at, size = 1, 0
  while fields ~= before and at < #fields do
    at = at + 2 + string.byte(fields, at + 1)
    size = size + ENTRY
  end
  return size > 0 and size + #fields or 0
end

-- Whether records need more room than what they replace gives free. Deletions need none: a marker is small. `at`: where
-- the options begin (see rules_of), `first`: where the records do.
local function grows(args, at, first)
  local keeps_history = args[at + HISTORY_COUNT] ~= '0' or args[at + HISTORY_AGE_MS] ~= '0'
  local growth = 0
  for i = first, #args, 2 do
    local size, payload = redis.call('STRLEN', args[i]), args[i + 1]
    if bit.band(string.byte(payload, 2), TOMBSTONE) ~= 0 then
      growth = growth - size
    else
      growth = growth + #payload - size + (size == 0 and ENTRY or 0) + (keeps_history and #payload + ENTRY or 0)
        + fields_growth(args[i], payload)
    end
  end
  return growth > 0
end

-- The function that does the same where that needs no more room; else it fails with OOM, as a function of Redis would.
local function unless_it_grows(call, at, first)
  return function(keys, args)
    if grows(args, at, first) then
      return redis.error_reply("OOM the chunk needs more room than it gives free, and 'maxmemory' is reached")
    end
    return call(keys, args)
  end
end

register('apply_full', unless_it_grows(apply, 8, 16), FULL)
register('whole_full', unless_it_grows(apply_whole, 8, 16), FULL)
register('strays_full', unless_it_grows(strays, 2, 13), FULL)
