-- Claims an idempotency key for ARGV[2] ms, unless it is taken.
-- KEYS[1]: the key's entry. ARGV[1]: the claim, which is another one for each request.
-- Reply: false where it was claimed (a repeated call has its claim already), else the entry that is there.
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then
  return found
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
