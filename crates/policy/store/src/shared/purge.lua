-- Tells the gateways of a cluster which stored responses to remove.
--
-- KEYS: the stream of a cache. ARGV: the verb, the time to live of the stream, then what the verb needs.
-- An entry of the stream has the fields `o` (the gateway that it is from) and `m` (what to remove).

local stream = KEYS[1]
local verb, ttl_ms = ARGV[1], ARGV[2]

-- Returns the last position. There always is one, so a stream that was replaced is recognized.
if verb == 'join' then
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  local position = last[1] and last[1][1] or redis.call('XADD', stream, '*', 'o', '', 'm', '')
  redis.call('PEXPIRE', stream, ttl_ms)
  return position
end

-- ARGV: the channel, the maximum number of entries, the gateway, then what to remove.
if verb == 'tell' then
  for at = 6, #ARGV do
    redis.call('XADD', stream, 'MAXLEN', '~', ARGV[4], '*', 'o', ARGV[5], 'm', ARGV[at])
  end
  redis.call('PEXPIRE', stream, ttl_ms)
  redis.call('PUBLISH', ARGV[3], stream)
  return #ARGV - 5
end

return redis.error_reply('unknown verb')
