-- Grants the only probe of a mark, unless the mark holds.
--
-- KEYS: the hash of all marks, and the key of the probe. ARGV: the mark, the owner of the question, and the maximum
-- duration of a probe in milliseconds. The reply is the time to wait in milliseconds, or 0 if the probe is granted.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local until_ms = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) .* m$')
local left = (tonumber(until_ms) or 0) - now
if left > 0 then return left end
if redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3]) then return 0 end
return math.max(redis.call('PTTL', KEYS[2]), 1)
