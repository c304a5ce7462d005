-- Takes from all rate limits of one subject, or from none. Each limit is a token bucket (GCRA).
-- KEYS[1]: a hash, unit -> the time (us since 1970, this server's clock) at which its bucket is full again.
-- ARGV: four for each limit: its unit, the cost, tokens per minute, the bucket's size.
-- A negative cost gives tokens back; such a call is never refused.
-- Returns three for each limit: tokens left, us until the bucket is full, us until the cost could be taken (0: taken).

local MINUTE = 60000000
-- Rounding errors below a microsecond must not refuse a cost that empties the bucket exactly.
local BRIM = 1

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local units = {}
for i = 1, #ARGV, 4 do
  units[#units + 1] = ARGV[i]
end
local stored = redis.call('HMGET', KEYS[1], unpack(units))

local was, full_at, waits, refused = {}, {}, {}, false
for n = 1, #units do
  local cost, per_minute, holds = ARGV[4 * n - 2] + 0, ARGV[4 * n - 1] + 0, ARGV[4 * n] + 0
  was[n] = math.max(tonumber(stored[n] or 0), now)
  full_at[n] = math.max(was[n] + cost * MINUTE / per_minute, now)
  -- A cost larger than the bucket is accepted when the bucket is full, and is paid off afterwards.
  local over = math.min(full_at[n] - now - holds * MINUTE / per_minute, was[n] - now)
  waits[n] = 0
  if cost > 0 and over > BRIM then
    waits[n] = over
    refused = true
  end
end

local reply, keep = {}, 0
for n = 1, #units do
  local per_minute, holds = ARGV[4 * n - 1] + 0, ARGV[4 * n] + 0
  local at = full_at[n]
  if refused then
    at = was[n]
  else
    -- Lua formats numbers with 14 digits by default.
    redis.call('HSET', KEYS[1], units[n], string.format('%.3f', at))
    keep = math.max(keep, at - now)
  end
  reply[#reply + 1] = math.max(0, math.floor(holds - (at - now) * per_minute / MINUTE + 0.000001))
  reply[#reply + 1] = math.ceil(at - now)
  reply[#reply + 1] = math.ceil(waits[n])
end
if not refused then
  redis.call('PEXPIRE', KEYS[1], math.ceil(keep / 1000) + 1)
end
return reply
