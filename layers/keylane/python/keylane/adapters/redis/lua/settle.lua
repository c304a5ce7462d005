-- Replaces ARGV[1], the claim, by ARGV[2], the response, for ARGV[3] ms; an empty response removes the claim.
-- The entry of another request stays: the claim had expired, and another request has claimed the key.
-- Returns 1, or 0 where another request has the key.
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
