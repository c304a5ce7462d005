-- The functions that a view's writer calls.

-- A lane keeps so many of its newest closings.
local CLOSINGS = 1000

-- Commits a lane's windows and its progress at once.
-- KEYS: the lane's watermark. ARGV: epoch, how many commits the lane has, event-time watermark ms, complete as of ms,
-- length of `{tag}:~view:g:w:`, time to live ms (0: none), the lane's progress, how many closings to add, how many
-- windows to remove, the closings, the keys to remove, then keys and payloads of the changed windows alternately.
-- Returns how many commits the lane has now. Errors: FENCED epoch, BEHIND commits (-1: no watermark; else the lane
-- has another number of commits), CORRUPT.
local function commit(keys, args)
  local epoch, before = tonumber(args[1]), tonumber(args[2])
  local flags, commits, _, complete, log_end = own(keys[1], epoch)
  if not flags then
    return commits
  end
  -- A writer commits one after the other: a lane with one commit more has this very commit, whose reply was lost.
  if commits == before + 1 then
    return commits
  elseif commits ~= before then
    return redis.error_reply(string.format('BEHIND %.0f', commits))
  end
  local prefix, ttl_ms, closings = tonumber(args[5]), tonumber(args[6]), tonumber(args[8])
  local first_gone = 10 + closings
  local first = first_gone + tonumber(args[9])
  local index, expiries = key_of(keys[1], prefix, 'i'), key_of(keys[1], prefix, 'x')
  local progress, closed = key_of(keys[1], prefix, 'p'), key_of(keys[1], prefix, 'c')
  local touched, dropped, sets, members, due_at = { index, expiries, progress, closed }, {}, {}, {}, {}
  local now = time_ms()
  for i = first_gone, first - 1 do
    touched[#touched + 1] = args[i]
    dropped[#dropped + 1] = string.sub(args[i], prefix + 1)
  end
  for i = first, #args, 2 do
    touched[#touched + 1] = args[i]
    sets[#sets + 1] = args[i]
    sets[#sets + 1] = args[i + 1]
    members[#members + 1] = 0
    members[#members + 1] = string.sub(args[i], prefix + 1)
    due_at[#due_at + 1] = now + ttl_ms
    due_at[#due_at + 1] = members[#members]
  end
  in_slices('EXISTS', nil, touched)
  if ttl_ms > 0 then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, DUE)) do
      dropped[#dropped + 1] = member
    end
  end
  in_slices('ZREM', index, dropped)
  in_slices('ZREM', expiries, dropped)
  for i = first_gone, first - 1 do
    redis.call('DEL', args[i])
  end
  if ttl_ms > 0 then
    for i = 1, #sets, 2 do
      redis.call('SET', sets[i], sets[i + 1], 'PX', args[6])
    end
    in_slices('ZADD', expiries, due_at)
  else
    in_slices('MSET', nil, sets)
  end
  in_slices('ZADD', index, members)
  if closings > 0 then
    redis.call('RPUSH', closed, unpack(args, 10, first_gone - 1))
    redis.call('LTRIM', closed, -CLOSINGS, -1)
  end
  redis.call('MSET', progress, args[7], keys[1],
    encode(flags, commits + 1, epoch, tonumber(args[3]), math.max(tonumber(args[4]), complete), log_end))
  return commits + 1
end

-- Commits as `commit` does, together with the rows of a table that the windows are made of.
-- KEYS: as of commit. ARGV: how many rows to set, how many markers, how many rows to remove, how long markers last (ms,
-- 0: there are none), keys and payloads of rows and then of markers alternately, keys to remove, then the arguments of
-- commit. Returns and errors: as commit.
local function commit_rows(keys, args)
  local first_marker = 5 + 2 * tonumber(args[1])
  local first_gone = first_marker + 2 * tonumber(args[2])
  local first = first_gone + tonumber(args[3])
  local touched, sets, gone, rest = {}, {}, {}, {}
  for i = 5, first_gone - 1, 2 do
    touched[#touched + 1] = args[i]
  end
  for i = 5, first_marker - 1 do
    sets[#sets + 1] = args[i]
  end
  for i = first_gone, first - 1 do
    gone[#gone + 1] = args[i]
    touched[#touched + 1] = args[i]
  end
  for i = first, #args do
    rest[#rest + 1] = args[i]
  end
  in_slices('EXISTS', nil, touched)
  local commits = commit(keys, rest)
  -- A commit whose reply was lost sets the same rows again.
  if type(commits) == 'number' then
    in_slices('DEL', nil, gone)
    in_slices('MSET', nil, sets)
    for i = first_marker, first_gone - 1, 2 do
      if args[4] == '0' then
        redis.call('DEL', args[i])
      else
        redis.call('SET', args[i], args[i + 1], 'PX', args[4])
      end
    end
  end
  return commits
end

register('commit', commit)
register('commit_rows', commit_rows)
