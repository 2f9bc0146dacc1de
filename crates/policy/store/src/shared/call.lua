-- The allocator: applies a member's call to the state of a shard, and replies how many units the member holds.
--
-- KEYS: the members, then one key for each group of the call.
-- ARGV: the terms, the call, the server incarnation, the member's name, the channel, then one text for each group.
--
-- The hash of the members has the field `:` for the shard, and a field for each member. The hash of a group has the
-- field `:` for the group, and a field for each member that holds units or wants some. A group that belongs to another
-- generation does not count. Identifiers are texts, because a number of 64 bits does not fit into one of Lua's.
--
-- Invariants, after each call. The model checks them (`model/invariants.rs`).
--
--   A unit exists once. For a group whose units come back, `limit` is the lowest that a living member affirms:
--     held + gone + pool <= limit             `held`: by living members; `gone`: by members in their grace period
--     0 <= pool, if units were lent           a negative pool (a limit was lowered) lends nothing
--     has <= hold                             only the member itself returns units
--     hold == has, while it recovers          after a loss, the state is not complete before the recovery window ends
--   For a window whose units are lent in blocks:
--     total + pool <= limit                   `total`: used or lent by all members, as `claimed` and `lent` tell
--     0 <= pool, if units were lent
--   Members:
--     begun <= last                           a generation begins with a call
--     joined <= called                        a member's part of a group is from its present lease
--     lowest divisor <= divisor, of each      no member cut off takes a larger fallback share than all others know of
--     lowest divisor <= member count
--   Every key has an end.

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

local function fallback_share(limit, divisor)
  if divisor == 0 then return 0 end
  return floor(limit / divisor)
end

-- The call

local terms = {}
terms.ttl, terms.renewal, terms.gap, terms.settle_time, terms.recovery_window, terms.fallback, terms.turn =
  unpack(words(ARGV[1]))

local call = {}
do
  local instance, generation, nonce, rest = string.match(ARGV[2], '^(%S+) (%S+) (%S+) (.*)$')
  call.instance, call.generation, call.nonce = instance, generation, nonce
  call.seq, call.member_count, call.lowest_divisor, call.divisor, call.leaves, call.earliest, call.latest =
    unpack(words(rest))
  call.leaves = call.leaves == 1
end
call.incarnation, call.name = ARGV[3], ARGV[4]
local channel = ARGV[5]
local now = clock_ms()

local function grace_period(cool_down) return more(terms.settle_time + cool_down) + SLACK_MS end

local function recovery_window(cool_down) return max(terms.recovery_window, terms.ttl + grace_period(cool_down)) end

-- The shard and its members

local shard
local members = {}

local function new_shard(generation)
  return {
    generation = generation, incarnation = call.incarnation, begun = now, last = now, cool_down = 0, member_count = 0,
    lowest_divisor = 0, claimants = 0, keep_until = 0,
  }
end

local function load_shard()
  local fields = redis.call('HGETALL', KEYS[1])
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    if field == ':' then
      local generation, rest = string.match(value, '^(%S+) (.*)$')
      shard = new_shard(generation)
      local numbers, incarnation = string.match(rest, '^(%S+ %S+ %S+ %S+ %S+ %S+ %S+) (.*)$')
      shard.begun, shard.last, shard.cool_down, shard.member_count, shard.lowest_divisor, shard.claimants,
        shard.keep_until = unpack(words(numbers))
      shard.incarnation = incarnation
    else
      local state, numbers, name = string.match(value, '^(%S+) (%S+ %S+ %S+ %S+ %S+ %S+) (.*)$')
      local row = {state = state, name = name}
      row.seq, row.ends, row.member_count, row.lowest_divisor, row.divisor, row.joined = unpack(words(numbers))
      members[field] = row
    end
  end
  shard = shard or new_shard('0')
end

-- Time for which a member that is gone may hold units.
local function gone_ms() return more(terms.fallback) + grace_period(shard.cool_down) end

local function save_member(instance)
  local row = members[instance]
  local value = texts(
    row.state, row.seq, row.ends, row.member_count, row.lowest_divisor, row.divisor, row.joined, row.name)
  redis.call('HSET', KEYS[1], instance, value)
end

local function save_shard()
  local s = shard
  local value = texts(
    s.generation, s.begun, s.last, s.cool_down, s.member_count, s.lowest_divisor, s.claimants, s.keep_until,
    s.incarnation)
  redis.call('HSET', KEYS[1], ':', value)
  -- Without its generation, no group counts. So it outlives them all.
  redis.call('PEXPIRE', KEYS[1], text(max(terms.ttl + gone_ms(), s.keep_until - now)))
end

-- Returns true if the member has called in this generation.
local function is_heard(row) return row.state ~= EARLIER end

local function is_living(row, at) return is_heard(row) and row.state ~= LEFT and at < row.ends end

-- Returns true if the state may not be complete, or the clock was set.
local function must_recover()
  if shard.generation == '0' or call.incarnation ~= shard.incarnation then return true end
  if now + CLOCK_STEP_MS < shard.last then return true end
  if call.earliest and call.generation == shard.generation then
    return now + CLOCK_STEP_MS < call.earliest or now > call.latest + CALL_TIMEOUT_MS + CLOCK_STEP_MS
  end
  local silent_max = floor(terms.renewal * 3 / 2) + CLOCK_STEP_MS
  if now <= shard.last + silent_max then return false end
  for _, row in pairs(members) do
    if is_living(row, shard.last) then return true end
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
-- may arrive late, does not count for what its member holds now. As long as it knows a member so, units from before may
-- still count.
local function begin_generation()
  redis.call('DEL', KEYS[1])
  local cool_down = shard.cool_down
  shard = new_shard(call.nonce)
  shard.cool_down = cool_down
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
    if call.generation ~= '0' and call.generation ~= shard.generation then
      -- A member and the process in its place are one.
      if is_first then shard.claimants = shard.claimants + 1 end
      shard.member_count = max(shard.member_count, call.member_count)
      shard.lowest_divisor = lowest(shard.lowest_divisor, call.lowest_divisor)
    end
  end
  members[call.instance] = {
    name = call.name, seq = call.seq, member_count = call.member_count, lowest_divisor = call.lowest_divisor,
    divisor = call.divisor,
    state = call.leaves and LEFT or JOINED, ends = call.leaves and now or now + terms.ttl,
    joined = before and before.joined or now,
  }
end

-- Returns true if neither the store nor a member has known an earlier generation, so no units from before count. That
-- everything was lost at once cannot be seen.
local function is_first_generation()
  if shard.claimants > 0 then return false end
  for _, row in pairs(members) do
    if not is_heard(row) then return false end
  end
  return true
end

-- Number of members that nobody has heard of since the generation began, and that may be cut off.
local function missing(cool_down)
  if now >= shard.begun + more(terms.ttl + terms.fallback) + grace_period(cool_down) then return 0 end
  return max(0, shard.member_count - shard.claimants)
end

local function view()
  local absent = missing(shard.cool_down)
  local member_count = absent
  for _, row in pairs(members) do
    if row.state == JOINED then member_count = member_count + 1 end
  end
  local lowest_divisor = member_count
  for _, row in pairs(members) do
    if row.state == JOINED then lowest_divisor = lowest(lowest_divisor, row.divisor) end
  end
  if absent > 0 then lowest_divisor = lowest(lowest_divisor, shard.lowest_divisor) end
  return member_count, lowest_divisor
end

-- The caller's divisor. It may only begin or fall once every other member knows about it.
local function new_divisor(member_count)
  local all_know = missing(shard.cool_down) == 0
  for instance, row in pairs(members) do
    if instance ~= call.instance and row.state == JOINED then
      all_know = all_know and row.member_count >= member_count
      all_know = all_know and row.lowest_divisor ~= 0 and row.lowest_divisor <= member_count
    end
  end
  local row = members[call.instance]
  local divisor = member_count
  if not all_know and (row.divisor == 0 or row.divisor > member_count) then divisor = row.divisor end
  row.divisor = lowest(row.divisor, divisor)
  return divisor
end

-- Groups

local function new_group(is_lost)
  return {
    begun = is_lost and now or shard.begun, cool_down = 0, has_fallback = 0, hinted_s = 0, hinted_f = 0, outside = 0,
    outside_until = 0, holders = {},
  }
end

-- Loads a group. A member that has had a reply about a group that the store does not know shows that the store has lost
-- it.
local function load_group(key, ask)
  local fields = redis.call('HGETALL', key)
  local group
  local holders = {}
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    if field == ':' then
      local generation, rest = string.match(value, '^(%S+) (.*)$')
      if generation == shard.generation then
        group = {}
        group.begun, group.cool_down, group.has_fallback, group.hinted_s, group.hinted_f, group.outside,
          group.outside_until, group.begin, group.finish, group.claimed, group.lent = unpack(words(rest))
      end
    else
      local holder = {}
      holder.hold, holder.want, holder.limit, holder.has_fallback, holder.used, holder.settled, holder.called,
        holder.since, holder.short = unpack(words(value))
      holders[field] = holder
    end
  end
  for instance, holder in pairs(holders) do
    local row = members[instance]
    if group and (not row or holder.called < row.joined) then
      holders[instance] = nil
      redis.call('HDEL', key, instance)
    end
  end
  local is_over = true
  if group and group.begin then
    -- The last calls of a window may count in the next one.
    is_over = now >= group.finish + grace_period(0)
  elseif group then
    is_over = next(holders) == nil
  end
  if is_over then
    if #fields > 0 then redis.call('DEL', key) end
    return new_group((ask.begin and ask.total or ask.has) > 0 and ask.generation == shard.generation)
  end
  group.holders = holders
  return group
end

local function holder_text(holder)
  return texts(
    holder.hold, holder.want, holder.limit, holder.has_fallback, holder.used, holder.settled, holder.called,
    holder.since, holder.short)
end

local function save_group(key, group)
  local values = {
    shard.generation, group.begun, group.cool_down, group.has_fallback, group.hinted_s, group.hinted_f, group.outside,
    group.outside_until, group.begin, group.finish, group.claimed, group.lent,
  }
  local holder = holder_text(group.holders[call.instance])
  redis.call('HSET', key, ':', texts(unpack(values)), call.instance, holder)
  local ends = terms.ttl + gone_ms() + grace_period(group.cool_down)
  ends = max(ends, group.outside_until - now)
  if group.begin then
    local finish = group.finish + grace_period(0)
    ends = max(ends, finish - now)
    shard.keep_until = max(shard.keep_until, finish)
  end
  redis.call('PEXPIRE', key, text(ends))
end

-- Notes the caller's part of the call. Returns the units that it held before, or nil if the group did not know it.
local function note_caller(group, ask)
  group.cool_down = max(group.cool_down, ask.cool_down)
  group.has_fallback = max(group.has_fallback, ask.has_fallback)
  local known = group.holders[call.instance]
  local since, short, before = now, 0
  if known then
    if (known.hold > 0) == (ask.has > 0) and known.want > 0 then since = known.since end
    short, before = known.short, known.hold
  end
  group.holders[call.instance] = {
    hold = ask.has, want = ask.want, limit = ask.limit, has_fallback = ask.has_fallback, used = ask.used,
    -- A clock that was set back a little must not make it a part from before the member joined.
    settled = ask.settled or 0, called = max(now, members[call.instance].joined), since = since, short = short,
  }
  return before
end

-- Units in use outside the cluster: what the provider counts more than the members have used.
local function outside_use(group, ask, limit, used)
  if ask.reset_in > 0 then
    group.outside = max(0, max(0, limit - ask.remaining) - used)
    group.outside_until = now + ask.reset_in
  end
  return now < group.outside_until and group.outside or 0
end

local function note_hold(group, hold)
  local holder = group.holders[call.instance]
  if holder.hold == 0 and hold > 0 then holder.since = now end
  holder.hold = hold
end

-- In the first generation, the members must only have time to say that there was another.
local function recovery_left(group)
  local is_first = shard.is_first and group.begun == shard.begun
  return max(0, group.begun + recovery_window(is_first and 0 or group.cool_down) - now)
end

-- Units of a member that is gone which still count.
local function counted(row, holder, cool_down)
  local settle = row.state == LEFT and 0 or terms.settle_time
  local all_until = row.ends + grace_period(cool_down) - (terms.settle_time - settle)
  if now < all_until then return holder.hold end
  if holder.has_fallback == 1 and row.state == JOINED and now < all_until + more(terms.fallback) then
    return min(holder.hold, fallback_share(holder.limit, row.divisor))
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
      local units = counted(row, holder, group.cool_down)
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
  shard.cool_down = max(shard.cool_down, ask.cool_down)
  local absent = missing(ask.cool_down)
  local before = note_caller(group, ask) or 0
  local census = census_of(group)
  local presumed = group.has_fallback == 1 and fallback_share(census.limit_max, shard.lowest_divisor) * absent or 0
  local taken = census.gone + presumed + outside_use(group, ask, census.limit, census.used)
  local level = level_of(max(0, census.limit - taken), census.wants)
  local pool = census.limit - taken - census.held
  local reply = {
    hold = ask.has, cap = math.huge, pool = pool, recovery = recovery_left(group), total = 0,
    differs = census.limit ~= census.limit_max and 1 or 0, hint = '-',
  }
  -- Too many units are held: a limit was lowered, or a member returns that was away for too long.
  if pool < 0 then reply.cap = max(0, ask.has + pool) end
  if call.leaves or reply.recovery > 0 then return reply end
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
      reply.hint = 'f' .. first_of(census)
      return reply
    end
    reply.hint = 'f'
  elseif is_newly_short then
    reply.hint = 's'
  end
  if reply.hint ~= '-' then
    local last = 'hinted_' .. reply.hint
    if now >= group[last] + terms.gap then group[last] = now else reply.hint = '-' end
  end
  return reply
end

-- Begins a window. Calls that were in transit at the end of the last one may count in it, so all that may have been
-- count until their member tells how many were.
local function begin_window(key, group, ask)
  local lent = 0
  if group.begin then
    for instance, holder in pairs(group.holders) do
      -- A member that has not called about the last window has used none of its units.
      local ends = holder.called >= group.begin and group.finish or group.begin
      local may_count = ask.begin < ends + grace_period(0)
      holder.hold = may_count and max(0, holder.hold - holder.settled) or 0
      holder.used, holder.settled = 0, 0
      lent = lent + holder.hold
      redis.call('HSET', key, instance, holder_text(holder))
    end
  end
  group.outside, group.outside_until = 0, 0
  group.begin, group.finish, group.claimed, group.lent = ask.begin, ask.finish, 0, lent
end

-- Applies the part of a call about a window whose units are lent in blocks.
local function lend(key, group, ask)
  local reply = {
    hold = 0, cap = math.huge, pool = 0, recovery = recovery_left(group), total = 0, differs = 0, hint = '-',
  }
  -- The caller's clock is ahead or behind: nothing is lent, and it asks again.
  if now < ask.begin or ask.finish <= now or ask.begin < (group.begin or 0) then return reply, true end
  if not group.begin or group.begin < ask.begin then begin_window(key, group, ask) end
  local before = note_caller(group, ask)
  local lowest, highest, living, unused = math.huge, 0, 0, 0
  for instance, holder in pairs(group.holders) do
    unused = unused + max(0, holder.hold - holder.used)
    if instance == call.instance or is_living(members[instance], now) then
      lowest, highest, living = min(lowest, holder.limit), max(highest, holder.limit), living + 1
    end
  end
  if not before then group.claimed = max(group.claimed, ask.total) end
  group.lent = group.lent + ask.has - (before or ask.known)
  local total = max(0, group.claimed + group.lent)
  local outside = outside_use(group, ask, lowest, max(0, total - unused))
  local left = max(0, lowest - total - outside)
  local block_max = max(1, min(floor(lowest / BLOCKS_MIN), floor(left / (2 * living))))
  local units = 0
  if reply.recovery == 0 and not call.leaves then units = min(max(0, ask.want - ask.has), block_max, left) end
  group.lent = group.lent + units
  reply.hold, reply.total = ask.has + units, total + units
  reply.pool = lowest - reply.total - outside
  reply.differs = lowest ~= highest and 1 or 0
  note_hold(group, reply.hold)
  return reply
end

-- The call is applied

load_shard()
local known = members[call.instance]
if known and call.seq <= known.seq and call.incarnation == shard.incarnation then return 'stale' end
if must_recover() then begin_generation() end
shard.last = max(shard.last, now)
forget_gone()
renew()
shard.is_first = is_first_generation()

local replies = {}
for at = 2, #KEYS do
  local ask = {}
  local generation, rest = string.match(ARGV[at + 4], '^(%S+) (.*)$')
  ask.generation = generation
  ask.limit, ask.cool_down, ask.has_fallback, ask.has, ask.want, ask.used, ask.remaining, ask.reset_in, ask.begin,
    ask.finish, ask.total, ask.known, ask.settled = unpack(words(rest))
  local group = load_group(KEYS[at], ask)
  local reply, is_void
  if ask.begin then reply, is_void = lend(KEYS[at], group, ask) else reply = hold(group, ask) end
  if not is_void then save_group(KEYS[at], group) end
  if reply.hint ~= '-' then
    redis.call('PUBLISH', channel, call.instance .. ' ' .. reply.hint .. ' ' .. KEYS[at])
  end
  replies[#replies + 1] =
    texts(reply.hold, reply.cap, reply.pool, reply.recovery, reply.total, reply.differs, reply.hint)
end

local member_count, lowest_divisor = view()
local divisor = new_divisor(member_count)
save_member(call.instance)
save_shard()
local head = texts(now, shard.generation, member_count, lowest_divisor, divisor)
return table.concat({head, unpack(replies)}, ' ')
