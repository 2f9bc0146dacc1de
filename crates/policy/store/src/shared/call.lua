-- Applies a member's call to the state of a segment, as `Book` does in Rust: the same calls give the same replies.
--
-- KEYS: the members, then one key for each group of the call.
-- ARGV: the terms, the call, the process of the store, the member's name, the channel, then one text for each group.
--
-- The hash of the members has the field `:` for the segment, and a field for each member. The hash of a group has the
-- field `:` for the group, and a field for each member that holds units or wants some. A group that belongs to another
-- generation does not count. Identifiers are texts, because a number of 64 bits does not fit into one of Lua's.

local CLOCK_STEP_MS = 500
local CALL_TIMEOUT_MS = 250
local SLACK_MS = 2000
local DRIFT_PARTS = 400
local BLOCKS_MIN = 100
local JOINED, SUPERSEDED, LEFT, EARLIER = 'j', 's', 'l', 'e'

local min, max, floor, ceil = math.min, math.max, math.floor, math.ceil

local function words(text)
  local list = {}
  for word in string.gmatch(text, '%S+') do list[#list + 1] = tonumber(word) or word end
  return list
end

local function text(number)
  if number == math.huge then return '-' end
  return string.format('%.0f', number)
end

local function texts(...)
  local list = {...}
  for at, value in ipairs(list) do
    if type(value) == 'number' then list[at] = text(value) end
  end
  return table.concat(list, ' ')
end

local function clock_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
end

-- A duration that passes on this clock no earlier than on another.
local function more(ms) return ms + ceil(ms / DRIFT_PARTS) end

-- The lower of two numbers of which 0 means none.
local function lowest(a, b)
  if a == 0 then return b end
  if b == 0 then return a end
  return min(a, b)
end

local function kept(limit, divisor)
  if divisor == 0 then return 0 end
  return floor(limit / divisor)
end

-- The call

local terms = {}
terms.ttl, terms.renewal, terms.gap, terms.settle, terms.learn, terms.keep, terms.turn = unpack(words(ARGV[1]))

local call = {}
do
  local instance, generation, nonce, rest = string.match(ARGV[2], '^(%S+) (%S+) (%S+) (.*)$')
  call.instance, call.generation, call.nonce = instance, generation, nonce
  call.seq, call.roster, call.low, call.divisor, call.leaves, call.earliest, call.latest = unpack(words(rest))
  call.leaves = call.leaves == 1
end
call.run, call.name = ARGV[3], ARGV[4]
local channel = ARGV[5]
local now = clock_ms()

local function limbo(cool) return more(terms.settle + cool) + SLACK_MS end

local function learning(cool) return max(terms.learn, terms.ttl + limbo(cool)) end

-- The segment and its members

local segment
local members = {}

local function new_segment(generation)
  return {
    generation = generation, run = call.run, begun = now, last = now, cool = 0, roster = 0, low = 0, asserters = 0,
    keep_until = 0,
  }
end

local function load_segment()
  local fields = redis.call('HGETALL', KEYS[1])
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    if field == ':' then
      local generation, rest = string.match(value, '^(%S+) (.*)$')
      segment = new_segment(generation)
      local numbers, run = string.match(rest, '^(%S+ %S+ %S+ %S+ %S+ %S+ %S+) (.*)$')
      segment.begun, segment.last, segment.cool, segment.roster, segment.low, segment.asserters, segment.keep_until =
        unpack(words(numbers))
      segment.run = run
    else
      local state, numbers, name = string.match(value, '^(%S+) (%S+ %S+ %S+ %S+ %S+ %S+) (.*)$')
      local row = {state = state, name = name}
      row.seq, row.ends, row.roster, row.low, row.divisor, row.joined = unpack(words(numbers))
      members[field] = row
    end
  end
  segment = segment or new_segment('0')
end

-- Time for which a member that is gone may hold units.
local function gone_ms() return more(terms.keep) + limbo(segment.cool) end

local function save_member(instance)
  local row = members[instance]
  local value = texts(row.state, row.seq, row.ends, row.roster, row.low, row.divisor, row.joined, row.name)
  redis.call('HSET', KEYS[1], instance, value)
end

local function save_segment()
  local s = segment
  local value = texts(s.generation, s.begun, s.last, s.cool, s.roster, s.low, s.asserters, s.keep_until, s.run)
  redis.call('HSET', KEYS[1], ':', value)
  -- Without its generation, no group counts. So it outlives them all.
  redis.call('PEXPIRE', KEYS[1], text(max(terms.ttl + gone_ms(), s.keep_until - now)))
end

-- Returns true if the member has called in this generation.
local function is_heard(row) return row.state ~= EARLIER end

local function is_living(row, at) return is_heard(row) and row.state ~= LEFT and at < row.ends end

-- Returns true if the state may not be complete, or the clock was set.
local function must_learn()
  if segment.generation == '0' or call.run ~= segment.run or now + CLOCK_STEP_MS < segment.last then return true end
  if call.earliest and call.generation == segment.generation then
    return now + CLOCK_STEP_MS < call.earliest or now > call.latest + CALL_TIMEOUT_MS + CLOCK_STEP_MS
  end
  local silent_max = floor(terms.renewal * 3 / 2) + CLOCK_STEP_MS
  if now <= segment.last + silent_max then return false end
  for _, row in pairs(members) do
    if is_living(row, segment.last) then return true end
  end
  return false
end

local function forget_gone()
  for instance, row in pairs(members) do
    if row.ends + gone_ms() <= now then
      members[instance] = nil
      redis.call('HDEL', KEYS[1], instance)
    end
  end
end

-- Begins a generation, which knows nothing of the members but the numbers of their calls. So a call from before, which
-- may arrive late, does not count for what its member holds now. A call does not outlive its connection, so another
-- process of the store needs no numbers.
local function begin_generation()
  redis.call('DEL', KEYS[1])
  if call.run ~= segment.run then members = {} end
  segment = new_segment(call.nonce)
  for instance, row in pairs(members) do
    -- Its time to be forgotten does not begin again with each generation.
    row.ends = is_heard(row) and now or min(row.ends, now)
    row.state = EARLIER
    save_member(instance)
  end
end

local function renew()
  local before = members[call.instance]
  if before and not is_heard(before) then before = nil end
  if not before then
    local is_first = true
    for instance, row in pairs(members) do
      if row.name == call.name and is_heard(row) then
        row.state = SUPERSEDED
        save_member(instance)
        is_first = false
      end
    end
    if call.generation ~= '0' and call.generation ~= segment.generation then
      -- A member and the process in its place are one.
      if is_first then segment.asserters = segment.asserters + 1 end
      segment.roster = max(segment.roster, call.roster)
      segment.low = lowest(segment.low, call.low)
    end
  end
  members[call.instance] = {
    name = call.name, seq = call.seq, roster = call.roster, low = call.low, divisor = call.divisor,
    state = call.leaves and LEFT or JOINED, ends = call.leaves and now or now + terms.ttl,
    joined = before and before.joined or now,
  }
end

-- Number of members that nobody has heard of since the generation began, and that may be cut off.
local function missing(cool)
  if now >= segment.begun + more(terms.ttl + terms.keep) + limbo(cool) then return 0 end
  return max(0, segment.roster - segment.asserters)
end

local function view()
  local absent = missing(segment.cool)
  local roster = absent
  for _, row in pairs(members) do
    if row.state == JOINED then roster = roster + 1 end
  end
  local low = roster
  for _, row in pairs(members) do
    if row.state == JOINED then low = lowest(low, row.divisor) end
  end
  if absent > 0 then low = lowest(low, segment.low) end
  return roster, low
end

-- The caller's divisor. It may only begin or fall once every other member knows about it.
local function new_divisor(roster)
  local all_know = missing(segment.cool) == 0
  for instance, row in pairs(members) do
    if instance ~= call.instance and row.state == JOINED then
      all_know = all_know and row.roster >= roster and row.low ~= 0 and row.low <= roster
    end
  end
  local row = members[call.instance]
  local told = roster
  if not all_know and (row.divisor == 0 or row.divisor > roster) then told = row.divisor end
  row.divisor = lowest(row.divisor, told)
  return told
end

-- Groups

local function new_group(is_lost)
  return {
    begun = is_lost and now or segment.begun, cool = 0, keeps = 0, pressed_s = 0, pressed_f = 0, others = 0, others_until = 0,
    holders = {},
  }
end

-- Loads a group. A member that was told about a group that the store does not know shows that the store has lost it.
local function load_group(key, ask)
  local fields = redis.call('HGETALL', key)
  local group
  local holders = {}
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    if field == ':' then
      local generation, rest = string.match(value, '^(%S+) (.*)$')
      if generation == segment.generation then
        group = {}
        group.begun, group.cool, group.keeps, group.pressed_s, group.pressed_f, group.others, group.others_until,
          group.begin, group.finish, group.asserted, group.lent = unpack(words(rest))
      end
    else
      local holder = {}
      holder.hold, holder.want, holder.limit, holder.keeps, holder.used, holder.settled, holder.told, holder.since,
        holder.short = unpack(words(value))
      holders[field] = holder
    end
  end
  for instance, holder in pairs(holders) do
    local row = members[instance]
    if group and (not row or holder.told < row.joined) then
      holders[instance] = nil
      redis.call('HDEL', key, instance)
    end
  end
  local is_over = true
  if group and group.begin then
    -- The last calls of a window may count in the next one.
    is_over = now >= group.finish + limbo(0)
  elseif group then
    is_over = next(holders) == nil
  end
  if is_over then
    if #fields > 0 then redis.call('DEL', key) end
    return new_group((ask.begin and ask.total or ask.has) > 0 and ask.generation == segment.generation)
  end
  group.holders = holders
  return group
end

local function holder_text(holder)
  return texts(
    holder.hold, holder.want, holder.limit, holder.keeps, holder.used, holder.settled, holder.told, holder.since,
    holder.short)
end

local function save_group(key, group)
  local values = {
    segment.generation, group.begun, group.cool, group.keeps, group.pressed_s, group.pressed_f, group.others,
    group.others_until, group.begin, group.finish, group.asserted, group.lent,
  }
  local told = holder_text(group.holders[call.instance])
  redis.call('HSET', key, ':', texts(unpack(values)), call.instance, told)
  local ends = terms.ttl + gone_ms() + limbo(group.cool)
  ends = max(ends, group.others_until - now)
  if group.begin then
    local finish = group.finish + limbo(0)
    ends = max(ends, finish - now)
    segment.keep_until = max(segment.keep_until, finish)
  end
  redis.call('PEXPIRE', key, text(ends))
end

-- Notes what the caller tells. Returns the units that it held before, or nil if the group did not know it.
local function tell(group, ask)
  group.cool = max(group.cool, ask.cool)
  group.keeps = max(group.keeps, ask.keeps)
  local known = group.holders[call.instance]
  local since, short, before = now, 0
  if known then
    if (known.hold > 0) == (ask.has > 0) and known.want > 0 then since = known.since end
    short, before = known.short, known.hold
  end
  group.holders[call.instance] = {
    hold = ask.has, want = ask.want, limit = ask.limit, keeps = ask.keeps, used = ask.used,
    settled = ask.settled or 0, told = now, since = since, short = short,
  }
  return before
end

-- Units that strangers use: what the provider counts more than the members have used.
local function others_of(group, ask, limit, used)
  if ask.reset_in > 0 then
    group.others = max(0, max(0, limit - ask.remaining) - used)
    group.others_until = now + ask.reset_in
  end
  return now < group.others_until and group.others or 0
end

local function note_hold(group, hold)
  local holder = group.holders[call.instance]
  if holder.hold == 0 and hold > 0 then holder.since = now end
  holder.hold = hold
end

local function group_learning(group) return max(0, group.begun + learning(group.cool) - now) end

-- Units of a member that is gone which still count.
local function counted(row, holder, cool)
  local settle = row.state == LEFT and 0 or terms.settle
  local all_until = row.ends + limbo(cool) - (terms.settle - settle)
  if now < all_until then return holder.hold end
  if holder.keeps == 1 and row.state == JOINED and now < all_until + more(terms.keep) then
    return min(holder.hold, kept(holder.limit, row.divisor))
  end
  return 0
end

local function census_of(group)
  local census = {limit = math.huge, limit_max = 0, held = 0, gone = 0, used = 0, wants = {}, others = {}}
  for instance, holder in pairs(group.holders) do
    local row = members[instance]
    if row and is_living(row, now) then
      census.limit = min(census.limit, holder.limit)
      census.limit_max = max(census.limit_max, holder.limit)
      census.held = census.held + holder.hold
      census.used = census.used + holder.used
      census.wants[#census.wants + 1] = holder.want
      if instance ~= call.instance then
        census.others[#census.others + 1] = holder
        holder.instance = instance
      end
    elseif row then
      local units = counted(row, holder, group.cool)
      census.gone = census.gone + units
      census.used = census.used + min(holder.used, units)
    end
  end
  if census.limit == math.huge then census.limit = 0 end
  for at, want in ipairs(census.wants) do census.wants[at] = min(want, census.limit) end
  return census
end

-- The level up to which every member gets its want.
local function level_of(units, wants)
  table.sort(wants)
  local left, count = units, #wants
  for _, want in ipairs(wants) do
    local share = floor(left / count)
    if share < want then return {floor = share, extra = left % count, is_contended = true} end
    left, count = left - want, count - 1
  end
  return {floor = math.huge, extra = 0, is_contended = false}
end

local function least(level, want) return min(want, level.floor) end

local function most(level, want) return min(want, level.floor + (level.extra > 0 and 1 or 0)) end

local function lacking(share)
  local sum = 0
  for _, other in ipairs(share.others) do sum = sum + max(0, least(share.level, other.want) - other.hold) end
  return sum
end

local function above(share)
  local count = 0
  for _, other in ipairs(share.others) do
    if other.hold > share.level.floor then count = count + 1 end
  end
  return count
end

local function ahead(share)
  local count = 0
  for _, other in ipairs(share.others) do
    if other.hold == 0 and other.want > 0 and other.since < share.since then count = count + 1 end
  end
  return count
end

local function grant(share, has, want)
  local level = share.level
  if not level.is_contended then return min(max(0, want - has), share.pool) end
  local units = min(max(0, least(level, want) - has), share.pool)
  if has + units ~= level.floor or most(level, want) <= level.floor then return units end
  local first = level.floor == 0 and ahead(share) or lacking(share)
  if above(share) < level.extra and share.pool > units + first then units = units + 1 end
  return units
end

local function cap(share, has, want, since)
  local level = share.level
  if not level.is_contended then return math.huge end
  local top = most(level, want)
  if has <= level.floor then return top end
  if level.floor == 0 then
    local others_wait = false
    for _, other in ipairs(share.others) do
      if other.hold == 0 and other.want > 0 then others_wait = true end
    end
    if now >= since + terms.turn and others_wait and share.pool == 0 then return 0 end
    return top
  end
  if above(share) + 1 > level.extra and lacking(share) > share.pool then return level.floor end
  return top
end

local function are_short(census, level)
  for _, other in ipairs(census.others) do
    local want = min(other.want, census.limit)
    if other.hold < least(level, want) or (level.floor == 0 and other.hold == 0 and want > 0) then return true end
  end
  return false
end

-- Returns true if another member holds more than its share.
local function can_give(census, level)
  for _, other in ipairs(census.others) do
    if other.hold > max(level.floor, 1) then return true end
  end
  return false
end

-- Returns true if the number in one text is lower than that in another.
local function is_lower(a, b) return #a < #b or (#a == #b and a < b) end

-- The member that has waited longest for its first unit.
local function first_of(census)
  local first
  for _, other in ipairs(census.others) do
    if other.hold == 0 and other.want > 0 then
      local is_first = not first or other.since < first.since
      is_first = is_first or (other.since == first.since and is_lower(other.instance, first.instance))
      if is_first then first = other end
    end
  end
  return first and first.instance or ''
end

-- Applies the part of a call about a group whose units come back.
local function hold(group, ask)
  segment.cool = max(segment.cool, ask.cool)
  local absent = missing(ask.cool)
  local before = tell(group, ask) or 0
  local census = census_of(group)
  local ghosts = group.keeps == 1 and kept(census.limit_max, segment.low) * absent or 0
  local taken = census.gone + ghosts + others_of(group, ask, census.limit, census.used)
  local level = level_of(max(0, census.limit - taken), census.wants)
  local pool = census.limit - taken - census.held
  local reply = {
    hold = ask.has, cap = math.huge, pool = pool, learning = group_learning(group), total = 0,
    differs = census.limit ~= census.limit_max and 1 or 0, press = '-',
  }
  -- Too many units are held: a limit was lowered, or a member returns that was away for too long.
  if pool < 0 then reply.cap = max(0, ask.has + pool) end
  if call.leaves or reply.learning > 0 then return reply end
  local holder = group.holders[call.instance]
  local share = {level = level, others = census.others, pool = max(0, pool), since = holder.since}
  for at, other in ipairs(share.others) do share.others[at] = other end
  local want = min(ask.want, census.limit)
  reply.hold = ask.has + grant(share, ask.has, want)
  reply.cap = min(reply.cap, cap(share, ask.has, want, holder.since))
  reply.pool = pool - (reply.hold - ask.has)
  note_hold(group, reply.hold)
  local waits = level.floor == 0 and reply.hold == 0 and want > 0
  local is_short = (reply.hold < least(level, want) or waits) and 1 or 0
  local is_newly_short = is_short == 1 and holder.short == 0 and can_give(census, level)
  holder.short = is_short
  if reply.hold < before and reply.pool > 0 and are_short(census, level) then
    if reply.pool == 1 and level.floor == 0 then
      reply.press = 'f' .. first_of(census)
      return reply
    end
    reply.press = 'f'
  elseif is_newly_short then
    reply.press = 's'
  end
  if reply.press ~= '-' then
    local last = 'pressed_' .. reply.press
    if now >= group[last] + terms.gap then group[last] = now else reply.press = '-' end
  end
  return reply
end

-- Begins a window. Calls that were in transit at the end of the last one may count in it, so all that may have been
-- count until their member tells how many were.
local function begin_window(key, group, ask)
  local lent = 0
  if group.begin then
    for instance, holder in pairs(group.holders) do
      -- Who has not told about the last window has used none of its units.
      local ends = holder.told >= group.begin and group.finish or group.begin
      local may_count = ask.begin < ends + limbo(0)
      holder.hold = may_count and max(0, holder.hold - holder.settled) or 0
      holder.used, holder.settled = 0, 0
      lent = lent + holder.hold
      redis.call('HSET', key, instance, holder_text(holder))
    end
  end
  group.others, group.others_until = 0, 0
  group.begin, group.finish, group.asserted, group.lent = ask.begin, ask.finish, 0, lent
end

-- Applies the part of a call about a window whose units are lent in blocks.
local function lend(key, group, ask)
  local reply = {
    hold = 0, cap = math.huge, pool = 0, learning = group_learning(group), total = 0, differs = 0, press = '-',
  }
  -- The caller's clock is ahead or behind: nothing is lent, and it asks again.
  if now < ask.begin or ask.finish <= now or ask.begin < (group.begin or 0) then return reply, true end
  if not group.begin or group.begin < ask.begin then begin_window(key, group, ask) end
  local before = tell(group, ask)
  local lowest, highest, living, unused = math.huge, 0, 0, 0
  for instance, holder in pairs(group.holders) do
    unused = unused + max(0, holder.hold - holder.used)
    if instance == call.instance or is_living(members[instance], now) then
      lowest, highest, living = min(lowest, holder.limit), max(highest, holder.limit), living + 1
    end
  end
  if not before then group.asserted = max(group.asserted, ask.total) end
  group.lent = group.lent + ask.has - (before or ask.known)
  local total = max(0, group.asserted + group.lent)
  local others = others_of(group, ask, lowest, max(0, total - unused))
  local left = max(0, lowest - total - others)
  local block_max = max(1, min(floor(lowest / BLOCKS_MIN), floor(left / (2 * living))))
  local units = 0
  if reply.learning == 0 and not call.leaves then units = min(max(0, ask.want - ask.has), block_max, left) end
  group.lent = group.lent + units
  reply.hold, reply.total = ask.has + units, total + units
  reply.pool = lowest - reply.total - others
  reply.differs = lowest ~= highest and 1 or 0
  note_hold(group, reply.hold)
  return reply
end

-- The call is applied

load_segment()
local known = members[call.instance]
if known and call.seq <= known.seq and call.run == segment.run then return 'stale' end
if must_learn() then begin_generation() end
segment.last = max(segment.last, now)
forget_gone()
renew()

local replies = {}
for at = 2, #KEYS do
  local ask = {}
  local generation, rest = string.match(ARGV[at + 4], '^(%S+) (.*)$')
  ask.generation = generation
  ask.limit, ask.cool, ask.keeps, ask.has, ask.want, ask.used, ask.remaining, ask.reset_in, ask.begin, ask.finish,
    ask.total, ask.known, ask.settled = unpack(words(rest))
  local group = load_group(KEYS[at], ask)
  local reply, is_void
  if ask.begin then reply, is_void = lend(KEYS[at], group, ask) else reply = hold(group, ask) end
  if not is_void then save_group(KEYS[at], group) end
  if reply.press ~= '-' then
    redis.call('PUBLISH', channel, call.instance .. ' ' .. reply.press .. ' ' .. KEYS[at])
  end
  replies[#replies + 1] =
    texts(reply.hold, reply.cap, reply.pool, reply.learning, reply.total, reply.differs, reply.press)
end

local roster, low = view()
local divisor = new_divisor(roster)
save_member(call.instance)
save_segment()
local head = texts(now, segment.generation, roster, low, divisor)
return table.concat({head, unpack(replies)}, ' ')
