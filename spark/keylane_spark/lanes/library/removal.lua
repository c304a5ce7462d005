-- The functions that remove a generation, and a topic.

-- Retires a lane whose records are about to be removed: readers ask for a newer layout, and whoever opens the lane
-- again, which a record from before may make a writer do, finds an empty one and reads the log from its start.
-- KEYS: the lane's watermark. ARGV: epoch, length of `{tag}:T:g:w:`. Returns 1; 0 if the lane has no valid watermark.
-- Errors: FENCED epoch.
local function retire(keys, args)
  local epoch, prefix = tonumber(args[1]), tonumber(args[2])
  local fenced = newer_writer(writer_key_of(keys[1], prefix), epoch)
  if fenced then
    return fenced
  end
  local flags, fault = own(keys[1], epoch)
  if not flags then
    return string.find(fault.err, 'FENCED', 1, true) and fault or 0
  end
  -- A view's lane continues from its progress and its closings, whatever its watermark says.
  redis.call('UNLINK', key_of(keys[1], prefix, 'p'), key_of(keys[1], prefix, 'c'))
  redis.call('SET', keys[1], encode(bit.bor(flags, SUPERSEDED), 0, epoch, 0, 0, 0))
  return 1
end

-- Removes keys of a generation in one slot.
-- KEYS: the key of the last epoch that opened a lane there (`e`). ARGV: epoch, the keys. Returns 0. Errors: FENCED
-- epoch: a newer writer has taken the generation into use.
local function remove(keys, args)
  local fenced = newer_writer(keys[1], tonumber(args[1]))
  if fenced then
    return fenced
  end
  local gone = {}
  for i = 2, #args do
    gone[i - 1] = args[i]
  end
  in_slices('UNLINK', nil, gone)
  return 0
end

-- Removes records of a topic.
-- KEYS: the topic's epoch counter, the records. ARGV: epoch. Returns 0. Errors: FENCED epoch, CORRUPT.
local function forget(keys, args)
  local refused = newer_run(keys[1], tonumber(args[1]))
  if refused then
    return refused
  end
  redis.call('DEL', unpack(keys, 2))
  return 0
end

register('retire', retire, FULL)
register('remove', remove, FULL)
register('forget', forget, FULL)
