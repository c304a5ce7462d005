-- Claims an idempotency key for ARGV[2] ms, unless it is taken.
-- KEYS[1]: the entry of the key. ARGV[1]: the claim, unique to the request.
-- Returns false when the key is claimed (a repeated call finds its own claim), else the entry that is there.
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then
  return found
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
