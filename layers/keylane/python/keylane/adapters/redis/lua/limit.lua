-- Rate limits of one subject, as a token bucket each (GCRA): all take, or none does.
-- KEYS[1]: a hash, unit -> the time (us since 1970, this server's clock) at which its bucket is full again.
-- ARGV: for each limit four: its unit, the cost, what a minute gives, what the bucket holds.
-- A negative cost gives back, and nothing is refused then.
-- Reply: for each limit what is left, us until the bucket is full, us until the cost could be had (0: it was taken).

local MINUTE = 60000000
-- Sums of fractions of a microsecond must not refuse what fills a bucket to the brim.
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
  -- What is larger than the bucket is let through when that is full, and paid for afterwards.
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
    -- Lua writes numbers with 14 digits, unless it is told.
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
