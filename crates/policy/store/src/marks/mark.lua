-- Merges marks into those of the cluster, as `MarkTable` does in Rust, and publishes what has changed.
--
-- KEYS: the hash of all marks.
-- ARGV: the channel, `1` to read all marks, then a text for each change: `m KEY LEFT PROOF NOTE`, or `e KEY AGO`.
--
-- A field of the hash is `UNTIL PROOF NOTE STATE` in milliseconds by this server's clock. The reply has texts like those
-- that are published: all marks, or those whose change was out of date.

local SLACK_MS = 100
local AFTER_MS = 60000
local MARKS_MAX = 10000
local LIVE, ENDED = 'm', 'e'

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local marks, channel = KEYS[1], ARGV[1]

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

-- Forgets the marks that are over, and returns texts for the others.
local function sweep()
  local fields, texts = redis.call('HGETALL', marks), {}
  for at = 1, #fields, 2 do
    local mark = read(fields[at + 1])
    if not mark or mark.until_ms + AFTER_MS < now then
      redis.call('HDEL', marks, fields[at])
    elseif mark.state == ENDED or mark.until_ms > now then
      texts[#texts + 1] = told(fields[at], mark)
    end
  end
  return texts
end

local function has_room(key)
  if redis.call('HLEN', marks) < MARKS_MAX or redis.call('HEXISTS', marks, key) == 1 then return true end
  sweep()
  return redis.call('HLEN', marks) < MARKS_MAX
end

local function save(key, mark)
  redis.call('HSET', marks, key, table.concat({number(mark.until_ms), number(mark.proof), mark.note, mark.state}, ' '))
end

local function write(key, mark)
  if not has_room(key) then return end
  save(key, mark)
  local keep = math.max(mark.until_ms - now, 0) + AFTER_MS
  if redis.call('PTTL', marks) < keep then redis.call('PEXPIRE', marks, keep) end
  redis.call('PUBLISH', channel, told(key, mark))
end

local corrections = {}

local function mark(key, left, proof, note)
  local new = { until_ms = now + left, proof = now + proof, note = note, state = LIVE }
  local old = known(key)
  if old and old.state == ENDED and new.proof <= old.proof then
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

if ARGV[2] == '1' then return sweep() end
return corrections
