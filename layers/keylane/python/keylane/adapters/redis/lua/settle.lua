-- Puts ARGV[2], the answer, in the place of ARGV[1], the claim, for ARGV[3] ms; an empty one removes the claim.
-- An entry of another request stays: the claim had run out, and was taken over.
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
