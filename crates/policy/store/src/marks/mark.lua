-- Merges marks into those of the cluster, as `MarkTable` does in Rust, and publishes what has changed.
--
-- KEYS: the hash of all marks, and a sorted set of their names by the time at which they may be forgotten.
-- ARGV: the channel, `1` to read all marks, then a text for each change: `m KEY LEFT PROOF NOTE`, or `e KEY AGO`.
--
-- A field of the hash is `UNTIL PROOF NOTE STATE` in milliseconds by this server's clock. The reply has texts like those
-- that are published: all marks, or those whose change was out of date.

local SLACK_MS = 100
local AFTER_MS = 60000
local MARKS_MAX = 2000
-- A call forgets at most so many marks, and adds fewer.
local FORGOTTEN_MAX = 512
local LIVE, ENDED = 'm', 'e'

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local marks, ends, channel = KEYS[1], KEYS[2], ARGV[1]

local function number(value) return string.format('%.0f', value) end

local function read(text)
  local until_ms, proof, note, state = string.match(text, '^(%d+) (%-?%d+) (%d+) ([me])$')
  if not until_ms then return nil end
  return { until_ms = tonumber(until_ms), proof = tonumber(proof), note = note, state = state }
end

local function known(key)
  local text = redis.call('HGET', marks, key)
  return text and read(text)
end

local function told(key, mark)
  if mark.state == ENDED then return table.concat({ENDED, key, number(math.max(now - mark.proof, 0))}, ' ') end
  return table.concat({LIVE, key, number(math.max(mark.until_ms - now, 0)), number(mark.proof - now), mark.note}, ' ')
end

local function forget_the_old()
  local old = redis.call('ZRANGEBYSCORE', ends, '-inf', number(now), 'LIMIT', 0, FORGOTTEN_MAX)
  if #old == 0 then return end
  redis.call('HDEL', marks, unpack(old))
  redis.call('ZREM', ends, unpack(old))
end

local function all()
  local fields, texts = redis.call('HGETALL', marks), {}
  for at = 1, #fields, 2 do
    local mark = read(fields[at + 1])
    if mark and (mark.state == ENDED or mark.until_ms > now) then texts[#texts + 1] = told(fields[at], mark) end
  end
  return texts
end

local function has_room(key)
  return redis.call('HLEN', marks) < MARKS_MAX or redis.call('HEXISTS', marks, key) == 1
end

local function save(key, mark)
  redis.call('HSET', marks, key, table.concat({number(mark.until_ms), number(mark.proof), mark.note, mark.state}, ' '))
  redis.call('ZADD', ends, number(math.max(mark.until_ms, now) + AFTER_MS), key)
end

-- Without room, a change is only published.
local function write(key, mark)
  if has_room(key) then
    save(key, mark)
    local keep = math.max(mark.until_ms - now, 0) + AFTER_MS
    for _, name in ipairs(KEYS) do
      if redis.call('PTTL', name) < keep then redis.call('PEXPIRE', name, number(keep)) end
    end
  end
  redis.call('PUBLISH', channel, told(key, mark))
end

forget_the_old()
local corrections = {}

local function mark(key, left, proof, note)
  local new = { until_ms = now + left, proof = now + proof, note = note, state = LIVE }
  local old = known(key)
  if old and old.state == ENDED and new.proof < old.proof then
    corrections[#corrections + 1] = told(key, old)
    return
  end
  if old and old.state == LIVE then
    new.proof = math.max(new.proof, old.proof)
    if new.until_ms <= old.until_ms + SLACK_MS then
      old.proof = new.proof
      return save(key, old)
    end
  end
  write(key, new)
end

local function finish(key, ago)
  local old, began = known(key), now - ago
  if old and began <= old.proof then
    if old.state == LIVE then corrections[#corrections + 1] = told(key, old) end
    return
  end
  write(key, { until_ms = old and old.until_ms or now, proof = began, note = '0', state = ENDED })
end

for at = 3, #ARGV do
  local kind, key, rest = string.match(ARGV[at], '^([me]) (%S+) (.*)$')
  if kind == LIVE then
    local left, proof, note = string.match(rest, '^(%d+) (%-?%d+) (%d+)$')
    mark(key, tonumber(left), tonumber(proof), note)
  else
    finish(key, tonumber(rest))
  end
end

if ARGV[2] == '1' then return all() end
return corrections
