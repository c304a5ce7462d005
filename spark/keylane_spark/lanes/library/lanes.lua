-- The functions that a writer calls for a lane. Errors of all of them:
--   FENCED epoch         a newer writer, with this epoch, owns the lane
--   BEHIND next offset   the call does not follow what the lane has (-1: the lane has no watermark)
--   CORRUPT text         the watermark record can't be read

-- Applies the records of [from, to) that the lane does not have yet, and moves the watermark to `to`.
-- KEYS: the lane's watermark. ARGV: epoch, from, to, newest timestamp ms, complete as of ms, log end (0: as
-- before), 1 when there are tombstones, the 8 options, then keys and payloads alternately, in offset order.
-- Returns the lane's next offset.
local function apply(keys, args)
  local epoch, from, to = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local newest, complete, log_end = tonumber(args[4]), tonumber(args[5]), tonumber(args[6])
  local flags, next_offset, newest_before, complete_before, log_end_before = own(keys[1], epoch)
  if not flags then
    return next_offset
  end
  if next_offset < from then
    return redis.error_reply(string.format('BEHIND %.0f', next_offset))
  end
  -- A chunk that reaches beyond the lane's next offset may be applied completely, whatever it repeats: it has the
  -- last record of each of its keys. One that does not brings nothing new.
  if args[8 + COMPARED] == '1' or bit.band(flags, HAS_STRAYS) ~= 0 then
    local first = next_offset < to and 16 or #args + 1
    merge(keys[1], args, 8, first, next_offset, bit.band(flags, HAS_STRAYS) ~= 0)
  elseif next_offset < to then
    if args[7] == '1' or #args > 15 + SLICE then
      write(args, 16, args[8 + MARKER_MS])
    elseif #args > 15 then
      redis.call('MSET', unpack(args, 16))
    end
  end
  if complete > 0 then
    flags = bit.band(flags, bit.bnot(MAY_LACK_STRAYS))
  end
  if next_offset < to then
    next_offset = to
    newest_before = math.max(newest, newest_before)
  end
  redis.call('SET', keys[1], encode(flags, next_offset, epoch, newest_before,
    math.max(complete, complete_before), math.max(log_end, log_end_before)))
  return next_offset
end

-- Writes the records of [after, to) of another partition into the lane where readers look for their keys; the lane's
-- watermark stays. Records that the lane has are dropped: what was deleted since would come back.
-- KEYS: the lane's watermark. ARGV: epoch, the 8 options, the partition that the records come from, the end of the
-- chunk that its writer sent before (0: all that it sent has arrived), the offset below which the lane then has all
-- strays of that partition, then keys and payloads alternately.
-- Returns 0. BEHIND names the offset below which the lane has that partition's strays. Also fails with LOST: the lane
-- has failed over since it was opened. Strays that it had taken may be missing, and noting later ones would hide that.
local function strays(keys, args)
  local epoch, source, after, to = tonumber(args[1]), args[10], tonumber(args[11]), tonumber(args[12])
  local flags, next_offset, newest, complete, log_end = own(keys[1], epoch)
  if not flags then
    return next_offset
  end
  if has_failed_over(keys[1], args[2 + PREFIX_BYTES]) then
    return redis.error_reply('LOST strays')
  end
  local taken = key_of(keys[1], tonumber(args[2 + PREFIX_BYTES]), 's')
  local before = tonumber(redis.call('HGET', taken, source) or 0)
  if before < after then
    return redis.error_reply(string.format('BEHIND %.0f', before))
  end
  if before < to then
    merge(keys[1], args, 2, 13, before, true)
    redis.call('HSET', taken, source, args[12])
  end
  if bit.band(flags, HAS_STRAYS) == 0 then
    redis.call('SET', keys[1], encode(bit.bor(flags, HAS_STRAYS), next_offset, epoch, newest, complete, log_end))
  end
  return 0
end

-- Deletes keys that another generation of the topic knows to be deleted, though the log no longer shows it. What is
-- newer than a tombstone stays. From then on the lane compares: a marker may be of another partition.
-- KEYS: the lane's watermark. ARGV: epoch, the 8 options, then keys and tombstones alternately. A tombstone has the
-- position that it has in the log, or that of the record that it deletes.
-- Returns 0. Also fails with LOST, as strays: deletions that the lane had taken may be missing.
local function carry(keys, args)
  local flags, next_offset, newest, complete, log_end = own(keys[1], tonumber(args[1]))
  if not flags then
    return next_offset
  end
  if has_failed_over(keys[1], args[2 + PREFIX_BYTES]) then
    return redis.error_reply('LOST deletions')
  end
  merge(keys[1], args, 2, 10, 0, true)
  redis.call('SET', keys[1],
    encode(bit.bor(flags, HAS_STRAYS), next_offset, tonumber(args[1]), newest, complete, log_end))
  return 0
end

-- Notes which lanes were given a partition's strays. It is called before the partition's watermark moves, so that
-- strays lost with a failover are noticed.
-- KEYS: the watermark of the partition's first lane. ARGV: epoch, length of `{tag}:T:g:w:`, then alternately a lane
-- and the offset below which it was given all strays of this partition.
-- Returns 0.
local function gave(keys, args)
  local flags, next_offset, newest, complete, log_end = own(keys[1], tonumber(args[1]))
  if not flags then
    return next_offset
  end
  local given, changed = key_of(keys[1], tonumber(args[2]), 'o'), {}
  for i = 3, #args, 2 do
    if tonumber(args[i + 1]) > tonumber(redis.call('HGET', given, args[i]) or 0) then
      changed[#changed + 1] = args[i]
      changed[#changed + 1] = args[i + 1]
    end
  end
  in_slices('HSET', given, changed)
  redis.call('SET', keys[1],
    encode(bit.bor(flags, GAVE_STRAYS), next_offset, tonumber(args[1]), newest, complete, log_end))
  return 0
end

local function noted(flags, flag, watermark_key, prefix, kind)
  if bit.band(flags, flag) == 0 then
    return {}
  end
  return redis.call('HGETALL', key_of(watermark_key, tonumber(prefix), kind))
end

-- Takes the lane for this epoch, and makes a superseded lane serve again. A new lane begins at the oldest offset; one
-- whose next offset the log has lost continues there, and is marked incomplete. A lane that has never been complete,
-- or that has failed over, may lack strays, and so may the partition that gave them lack its note of them.
-- KEYS: the lane's watermark. ARGV: epoch, the oldest offset that the log still has, 1 when a new lane has already
-- lost records, length of `{tag}:T:g:w:`.
-- Returns next offset, 1 when incomplete, 1 when the lane has strays, complete as of ms, the strays that it took
-- (partition and offset alternately, see strays), those that its partition gave (lane and offset, see gave), not 0
-- when the lane may lack strays, not 0 when it may have missed deletions.
local function open(keys, args)
  local epoch, oldest = tonumber(args[1]), tonumber(args[2])
  local writer_key = writer_key_of(keys[1], tonumber(args[4]))
  local fenced = newer_writer(writer_key, epoch)
  if fenced then
    return fenced
  end
  local stored = redis.call('GET', keys[1])
  local flags, next_offset, owner, newest, complete, log_end = tonumber(args[3]) * INCOMPLETE, oldest, 0, 0, 0, 0
  if stored then
    flags, next_offset, owner, newest, complete, log_end = decode(stored)
    if not flags then
      return redis.error_reply(next_offset)
    end
    if owner >= epoch then
      return redis.error_reply(string.format('FENCED %.0f', owner))
    end
    flags = bit.band(flags, bit.bnot(SUPERSEDED))
    if next_offset < oldest then
      flags, next_offset = bit.bor(flags, INCOMPLETE), oldest
    end
  end
  local taken = noted(flags, HAS_STRAYS, keys[1], args[4], 's')
  local given = noted(flags, GAVE_STRAYS, keys[1], args[4], 'o')
  local lineage_key, present = key_of(keys[1], tonumber(args[4]), 'l'), lineage()
  if complete == 0 or redis.call('GET', lineage_key) ~= present then
    flags = bit.bor(flags, MAY_LACK_STRAYS)
  end
  redis.call('MSET', keys[1], encode(flags, next_offset, epoch, newest, complete, log_end), lineage_key, present,
    writer_key, args[1])
  local incomplete, has_strays = bit.band(flags, INCOMPLETE) / INCOMPLETE, bit.band(flags, HAS_STRAYS) / HAS_STRAYS
  return { next_offset, incomplete, has_strays, complete, taken, given, bit.band(flags, MAY_LACK_STRAYS),
    bit.band(flags, MISSED_DELETIONS) }
end

-- Sets flags for the lane's readers: SUPERSEDED (its generation is not the current one), INCOMPLETE, MISSED_DELETIONS.
-- KEYS: the lane's watermark. ARGV: epoch, the flags. Returns 1; 0 if the lane does not exist.
local function mark(keys, args)
  local epoch = tonumber(args[1])
  if redis.call('EXISTS', keys[1]) == 0 then
    return 0
  end
  local flags, next_offset, newest, complete, log_end = own(keys[1], epoch)
  if not flags then
    return next_offset
  end
  redis.call('SET', keys[1], encode(bit.bor(flags, tonumber(args[2])), next_offset, epoch, newest, complete, log_end))
  return 1
end

-- As apply, for a topic with strays: a lane that has failed over since it was opened may lack strays, and must not be
-- marked complete. Also fails with LOST.
local function apply_whole(keys, args)
  local flags, fault = own(keys[1], tonumber(args[1]))
  if not flags then
    return fault
  end
  if has_failed_over(keys[1], args[8 + PREFIX_BYTES]) then
    return redis.error_reply('LOST strays')
  end
  return apply(keys, args)
end

register('apply', apply)
register('whole', apply_whole)
register('strays', strays)
register('carry', carry, FULL)
register('open', open, FULL)
register('mark', mark, FULL)
register('gave', gave, FULL)
