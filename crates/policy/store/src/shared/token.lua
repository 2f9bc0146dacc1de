-- Elects one gateway of a cluster to fetch a token, and stores the sealed result.
--
-- KEYS: the state, the lock.
-- ARGV: the verb, the owner of the claim, the channel, then what the verb needs. A reply is a list of texts.
--
-- The hash of the state has the fields `v` (version), `s` (sealed content), `t` (time to live and age with which it was stored),
-- `r` (process of the store that it is from), `u` (owner that uses the refresh token now), and `n` (`1` if the endpoint
-- accepts a refresh token again). All but `s` is public: counts, durations and random numbers.

local state, lock = KEYS[1], KEYS[2]
local verb, owner, channel = ARGV[1], ARGV[2], ARGV[3]

local function version() return tonumber(redis.call('HGET', state, 'v') or 0) end

local function holds_lock() return redis.call('GET', lock) == owner end

local function is_in_use_by_owner() return redis.call('HGET', state, 'u') == owner end

local function release()
  if holds_lock() then redis.call('DEL', lock) end
end

-- The version, the content, the age of the content in milliseconds, and the process of the store.
local function stored(word)
  local fields = redis.call('HMGET', state, 'v', 's', 't', 'r')
  local age = math.max(0, tonumber(fields[3] or 0) - redis.call('PTTL', state))
  return {word, fields[1] or '0', fields[2] or '', string.format('%.0f', age), fields[4] or ''}
end

local function put(new_version, sealed, ttl_ms, age_ms)
  local told_ms = string.format('%.0f', tonumber(ttl_ms) + tonumber(age_ms))
  redis.call('HSET', state, 'v', new_version, 's', sealed, 't', told_ms)
  redis.call('PEXPIRE', state, ttl_ms)
  if is_in_use_by_owner() then redis.call('HDEL', state, 'u') end
  redis.call('PUBLISH', channel, state)
end

-- ARGV: the version known, the time to live of the lock, `1` if a refresh token must not be used twice.
if verb == 'claim' then
  if version() > tonumber(ARGV[4]) then return stored('newer') end
  if not redis.call('SET', lock, owner, 'NX', 'PX', ARGV[5]) then
    return {'busy', string.format('%.0f', redis.call('PTTL', lock))}
  end
  -- An owner that uses the refresh token has neither stored a result nor released it, and its lock is over.
  if ARGV[6] == '1' and redis.call('HEXISTS', state, 'u') == 1 and redis.call('HGET', state, 'n') ~= '1' then
    release()
    return {'doubt'}
  end
  return stored('elected')
end

-- ARGV: the process of the store, the time to live of the state. From here on the refresh token is in use.
if verb == 'begin' then
  if not holds_lock() then return {'lost'} end
  redis.call('HSET', state, 'u', owner, 'r', ARGV[4])
  -- The time to live of a state shows its age, so it stays.
  if redis.call('PTTL', state) < 0 then redis.call('PEXPIRE', state, ARGV[5]) end
  return stored('begun')
end

-- ARGV: the new version, the sealed content, its time to live, the process of the store, `1` if a refresh token must not be
-- used twice, `1` if the endpoint accepts the refresh token again.
if verb == 'store' then
  local is_owner
  if ARGV[8] == '1' then is_owner = is_in_use_by_owner() else is_owner = holds_lock() end
  local is_stored = is_owner and tonumber(ARGV[4]) > version()
  if is_stored then
    put(ARGV[4], ARGV[5], ARGV[6], 0)
    redis.call('HSET', state, 'r', ARGV[7], 'n', ARGV[9])
  end
  release()
  return {is_stored and 'stored' or 'refused'}
end

-- ARGV: a version that a gateway knows, its sealed content, its time to live, its age. The store may have lost it.
if verb == 'offer' then
  if tonumber(ARGV[4]) <= version() then return {'refused'} end
  put(ARGV[4], ARGV[5], ARGV[6], ARGV[7])
  return {'stored'}
end

-- Returns the state.
if verb == 'read' then return stored('newer') end

-- ARGV: the time for which nobody should fetch. The fetch has failed, and the refresh token stays valid.
if verb == 'release' then
  if is_in_use_by_owner() then redis.call('HDEL', state, 'u') end
  if ARGV[4] == '0' then
    release()
    redis.call('PUBLISH', channel, state)
  elseif holds_lock() then
    redis.call('PEXPIRE', lock, ARGV[4])
  end
  return {'released'}
end

return redis.error_reply('unknown verb')
