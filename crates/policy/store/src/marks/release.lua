-- Ends a probe, if it is still the owner's, and publishes that another one may follow.
--
-- KEYS: the key of the probe. ARGV: the owner, the channel, and the mark.

if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], 'f ' .. ARGV[3])
end
return 0
