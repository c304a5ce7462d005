-- The functions that issue epochs, and fence a topic's layout by them.

-- Returns the last epoch that was issued (0: none) and the run that took it; or nil and an error reply.
local function last_epoch(key)
  local stored = redis.call('GET', key) or '0'
  local epoch, run = string.match(stored, '^(%d+) ?(.*)$')
  if not epoch then
    return nil, redis.error_reply('CORRUPT the epoch counter is not a number')
  end
  return tonumber(epoch), run
end

-- Returns nil; or an error reply where a newer run than this epoch's has taken the topic, or its counter is corrupt.
local function newer_run(counter_key, epoch)
  local last, fault = last_epoch(counter_key)
  if not last then
    return fault
  end
  if last > epoch then
    return redis.error_reply(string.format('FENCED %.0f', last))
  end
end

-- Issues an epoch that is higher than all earlier ones.
-- KEYS: a topic's epoch counter. ARGV: the epoch that this run holds (-1: none yet), a number to exceed, the run's
-- name ('': none).
-- Returns the epoch. Errors: FENCED epoch when another run has taken a newer one (one of this run's own, whose reply
-- was lost, does not count), CORRUPT.
local function take_epoch(keys, args)
  local expected, run = tonumber(args[1]), args[3]
  local last, owner = last_epoch(keys[1])
  if not last then
    return owner
  end
  if expected >= 0 and last > expected and (run == '' or run ~= owner) then
    return redis.error_reply(string.format('FENCED %.0f', last))
  end
  local epoch = math.max(last, tonumber(args[2])) + 1
  local name = string.format('%.0f', epoch)
  redis.call('SET', keys[1], run == '' and name or name .. ' ' .. run)
  return epoch
end

-- Returns the epoch of a writer's record and its revision; nil where there is none, or it is not valid.
local function version_of(record)
  local is_valid, fields = pcall(cjson.decode, record or '')
  if is_valid and type(fields) == 'table' and type(fields.owner) == 'table' then
    return tonumber(fields.owner.epoch), tonumber(fields.revision)
  end
end

-- Returns whether a later change of the same run than this record is stored: the call was executed late.
local function is_overtaken(key, record)
  local epoch, revision = version_of(record)
  if not (epoch and revision) then
    return false
  end
  local stored_epoch, stored_revision = version_of(redis.call('GET', key))
  return stored_epoch == epoch and stored_revision ~= nil and stored_revision > revision
end

-- Stores a topic's layout record, its writer's record, or both. A record of an older revision than the stored one of
-- the same epoch changes nothing.
-- KEYS: the topic's epoch counter, layout record, writer's record. ARGV: epoch, the new layout record, the new
-- writer's record; an empty one leaves the record unchanged. Returns 0. Errors: FENCED epoch, CORRUPT.
local function set_layout(keys, args)
  local refused = newer_run(keys[1], tonumber(args[1]))
  if refused then
    return refused
  end
  if is_overtaken(keys[3], args[3]) then
    return 0
  end
  local changed = {}
  for i = 2, 3 do
    if args[i] ~= '' then
      changed[#changed + 1] = keys[i]
      changed[#changed + 1] = args[i]
    end
  end
  if #changed > 0 then
    redis.call('MSET', unpack(changed))
  end
  return 0
end

register('epoch', take_epoch, FULL)
register('layout', set_layout, FULL)
