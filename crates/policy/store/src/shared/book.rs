//! The store's side: who holds how many units of each group. The Lua script does the same in Redis.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::message::{
    BookReply, Call, GroupCall, GroupKey, GroupReply, Instance, Press, Told, View, WindowCall,
};
use super::sharing::{Level, kept};
use super::terms::{CALL_TIMEOUT_MS, CLOCK_STEP_MS, Terms, more};

/// The largest block is the limit divided by this.
const BLOCKS_MIN: u64 = 100;

/// The state of one segment: the members, and the groups that they hold units of.
#[derive(Debug, Clone, Default)]
pub struct Book {
    terms: Terms,
    /// Number of this generation; 0 if there is none yet.
    generation: u64,
    run: Arc<str>,
    begun_ms: u64,
    /// Time of the last call.
    last_ms: u64,
    /// The longest time for which units of a group cool.
    cool_max_ms: u64,
    /// The largest cluster that a member of an earlier generation knew, and the number of such members that
    /// have called in this one.
    asserted: View,
    asserters: u64,
    members: BTreeMap<Instance, MemberRow>,
    groups: HashMap<GroupKey, GroupRow>,
}

#[derive(Debug, Clone)]
struct MemberRow {
    name: Arc<str>,
    seq: u64,
    /// End of its lease, or the time at which it left.
    ends_ms: u64,
    state: MemberState,
    seen: View,
    /// The lowest divisor that it may use; 0 if none.
    divisor: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberState {
    /// It calls, or it died, or it is cut off: the store cannot tell.
    Joined,
    /// Another process with its name has started, so it has died.
    Superseded,
    /// It has drained all calls and said so.
    Left,
    /// It called in an earlier generation, and not in this one.
    Earlier,
}

#[derive(Debug, Clone, Default)]
struct GroupRow {
    begun_ms: u64,
    cool_ms: u64,
    keeps: bool,
    /// Times of the last presses, by their reason.
    short_ms: u64,
    freed_ms: u64,
    /// Units that strangers use, who do not belong to the cluster, and the time until which they count.
    others: u64,
    others_until_ms: u64,
    holders: BTreeMap<Instance, Holder>,
    window: Option<WindowRow>,
}

/// The part of a group that belongs to one member.
#[derive(Debug, Clone, Copy)]
struct Holder {
    hold: u64,
    want: u64,
    limit: u64,
    keeps: bool,
    /// Units in use, and those of a window that no later one counts.
    used: u64,
    settled: u64,
    told_ms: u64,
    /// Since when it has held units, or has waited for the first one.
    since_ms: u64,
    /// `true` if it held less than its share after its last call.
    is_short: bool,
}

/// The window of a group that is lent in blocks.
#[derive(Debug, Clone, Copy)]
struct WindowRow {
    begin_ms: u64,
    end_ms: u64,
    /// The largest total that a member told which the group did not know.
    asserted: u64,
    /// Units lent since, and those that the totals do not include, less those returned.
    lent: i64,
}

/// The facts about a call that its groups need.
#[derive(Debug, Clone, Copy)]
struct Caller {
    instance: Instance,
    now_ms: u64,
    leaves: bool,
    generation: u64,
}

impl Book {
    /// Creates an empty book.
    pub fn new(terms: Terms) -> Self {
        Self { terms, ..Self::default() }
    }

    /// Applies a call at `now_ms` by the store's clock.
    pub fn apply(&mut self, call: &Call, now_ms: u64) -> BookReply {
        let is_old = self.members.get(&call.instance).is_some_and(|row| call.seq <= row.seq);
        // A call may overtake an earlier one, whose sender has given it up.
        if is_old && call.run == self.run {
            return BookReply::Stale;
        }
        if self.must_learn(call, now_ms) {
            self.begin_generation(call, now_ms);
        }
        self.last_ms = self.last_ms.max(now_ms);
        self.forget_gone(now_ms);
        self.renew(call, now_ms);
        let (instance, leaves, generation) = (call.instance, call.leaves, self.generation);
        let caller = Caller { instance, now_ms, leaves, generation };
        let mut groups = Vec::with_capacity(call.groups.len());
        let mut pressed = Vec::new();
        for (index, group) in call.groups.iter().enumerate() {
            let (reply, press) = match group.window {
                None => self.hold(group, caller),
                Some(window) => (self.lend(group, window, caller), None),
            };
            groups.push(reply);
            pressed.extend(press.map(|press| (index, press)));
        }
        let view = self.view(now_ms);
        let divisor = self.divisor(call.instance, view, now_ms);
        BookReply::Told(Told { time_ms: now_ms, generation: self.generation, view, divisor, groups, pressed })
    }

    /// Returns `true` if the state may not be complete, or the clock was set.
    fn must_learn(&self, call: &Call, now_ms: u64) -> bool {
        if self.generation == 0 || call.run != self.run || now_ms + CLOCK_STEP_MS < self.last_ms {
            return true;
        }
        match call.clock {
            Some(clock) if call.generation == self.generation => {
                now_ms + CLOCK_STEP_MS < clock.earliest_ms
                    || now_ms > clock.latest_ms + CALL_TIMEOUT_MS + CLOCK_STEP_MS
            }
            // A caller that was told no time cannot notice a step. If others were due, assume one.
            _ => {
                let silent_max_ms = self.terms.renewal_ms * 3 / 2 + CLOCK_STEP_MS;
                let is_silent = now_ms > self.last_ms + silent_max_ms;
                is_silent && self.members.values().any(|row| row.is_living(self.last_ms))
            }
        }
    }

    /// Begins a generation, which knows nothing of the members but the numbers of their calls. So a call from
    /// before, which may arrive late, does not count for what its member holds now. A call does not outlive
    /// its connection, so another process of the store needs no numbers.
    fn begin_generation(&mut self, call: &Call, now_ms: u64) {
        let mut members = std::mem::take(&mut self.members);
        members.retain(|_, _| call.run == self.run);
        for row in members.values_mut() {
            // Its time to be forgotten does not begin again with each generation.
            row.ends_ms = if row.is_heard() { now_ms } else { row.ends_ms.min(now_ms) };
            row.state = MemberState::Earlier;
        }
        *self = Self {
            terms: self.terms,
            generation: call.nonce,
            run: call.run.clone(),
            begun_ms: now_ms,
            last_ms: now_ms,
            members,
            ..Self::default()
        };
    }

    /// Forgets members whose units are all free again.
    fn forget_gone(&mut self, now_ms: u64) {
        let Self { terms, members, groups, cool_max_ms, .. } = self;
        let gone_ms = more(terms.keep_ms).saturating_add(terms.limbo_ms(*cool_max_ms));
        members.retain(|_, row| row.ends_ms.saturating_add(gone_ms) > now_ms);
        for group in groups.values_mut() {
            group.holders.retain(|instance, _| members.contains_key(instance));
        }
        // The units of a window do not come back, and its last calls may count in the next one.
        groups.retain(|_, group| match group.window {
            None => !group.holders.is_empty(),
            Some(window) => now_ms < window.end_ms.saturating_add(terms.limbo_ms(0)),
        });
    }

    /// Renews the caller's lease.
    fn renew(&mut self, call: &Call, now_ms: u64) {
        let asserts = call.generation != 0 && call.generation != self.generation;
        let is_new = !self.members.get(&call.instance).is_some_and(MemberRow::is_heard);
        if is_new {
            let mut is_first = true;
            let is_of_name = |row: &&mut MemberRow| row.is_heard() && row.name == call.name;
            for row in self.members.values_mut().filter(is_of_name) {
                row.state = MemberState::Superseded;
                is_first = false;
            }
            if asserts {
                // A member and the process in its place are one.
                self.asserters += u64::from(is_first);
                self.asserted.roster = self.asserted.roster.max(call.view.roster);
                self.asserted.low = lowest(self.asserted.low, call.view.low);
            }
        }
        let state = if call.leaves { MemberState::Left } else { MemberState::Joined };
        let ends_ms = if call.leaves { now_ms } else { now_ms + self.terms.ttl_ms };
        let (seen, divisor) = (call.view, call.divisor);
        let row = MemberRow { name: call.name.clone(), seq: call.seq, ends_ms, state, seen, divisor };
        self.members.insert(call.instance, row);
    }

    /// Number of members that nobody has heard of since the generation began, and that may be cut off.
    fn missing(&self, now_ms: u64, cool_ms: u64) -> u64 {
        let Terms { ttl_ms, keep_ms, .. } = self.terms;
        let until_ms =
            self.begun_ms.saturating_add(more(ttl_ms + keep_ms)).saturating_add(self.terms.limbo_ms(cool_ms));
        if now_ms < until_ms { self.asserted.roster.saturating_sub(self.asserters) } else { 0 }
    }

    fn view(&self, now_ms: u64) -> View {
        let missing = self.missing(now_ms, self.cool_max_ms);
        let joined = self.members.values().filter(|row| row.state == MemberState::Joined);
        let roster = joined.clone().count() as u64 + missing;
        let low = joined.fold(roster, |low, row| lowest(low, row.divisor));
        let low = if missing > 0 { lowest(low, self.asserted.low) } else { low };
        View { roster, low }
    }

    /// Returns the divisor of the caller, and notes it. It may rise at any time. It may only begin or fall
    /// once every other member knows about it, because one of them may have to tell it after a loss.
    fn divisor(&mut self, caller: Instance, view: View, now_ms: u64) -> u64 {
        let missing = self.missing(now_ms, self.cool_max_ms);
        let knows = |row: &MemberRow| {
            row.seen.roster >= view.roster && row.seen.low != 0 && row.seen.low <= view.roster
        };
        let all_know = missing == 0
            && self
                .members
                .iter()
                .all(|(other, row)| *other == caller || row.state != MemberState::Joined || knows(row));
        let Some(row) = self.members.get_mut(&caller) else { return 0 };
        let told = match row.divisor {
            0 if !all_know => 0,
            divisor if divisor > view.roster && !all_know => divisor,
            _ => view.roster,
        };
        // The reply may be lost: then the member still uses the one before.
        row.divisor = lowest(row.divisor, told);
        told
    }

    /// Applies the part of a call about a group whose units come back.
    fn hold(&mut self, call: &GroupCall, caller: Caller) -> (GroupReply, Option<Press>) {
        let now_ms = caller.now_ms;
        self.cool_max_ms = self.cool_max_ms.max(call.cool_ms);
        let missing = self.missing(now_ms, call.cool_ms);
        let group = group_of(&mut self.groups, call, caller, self.begun_ms);
        let before = group.tell(call, caller);
        let learning_ms = group.learning_ms(&self.terms, now_ms);
        let census = group.census(&self.members, &self.terms, caller);
        let ghosts = if group.keeps { kept(census.limit_max, self.asserted.low) * missing } else { 0 };
        let others = group.others(call, census.limit, census.used, now_ms);
        let taken = census.gone.saturating_add(ghosts).saturating_add(others);
        let units = census.limit.saturating_sub(taken);
        let level = Level::of(units, &mut census.wants.clone());
        let mut pool = signed(census.limit) - signed(taken) - signed(census.held);
        let mut reply = GroupReply {
            hold: call.has,
            cap: u64::MAX,
            pool,
            learning_ms,
            total: 0,
            differs: census.limit != census.limit_max,
        };
        // Too many units are held: a limit was lowered, or a member returns that was away for too long.
        let excess = (-pool).max(0).unsigned_abs();
        if excess > 0 {
            reply.cap = call.has.saturating_sub(excess);
        }
        if caller.leaves || learning_ms > 0 {
            return (reply, None);
        }
        let share = Share { level, census: &census, pool: pool.max(0).unsigned_abs(), now_ms };
        let want = call.want.min(census.limit);
        reply.hold = call.has + share.grant(group, caller.instance, call.has, want);
        let cap = share.cap(group, caller.instance, call.has, want, self.terms.turn_ms);
        reply.cap = reply.cap.min(cap);
        pool -= signed(reply.hold - call.has);
        reply.pool = pool;
        group.note_hold(caller, reply.hold);
        let waits = level.floor == 0 && reply.hold == 0 && want > 0;
        let is_short = reply.hold < level.least(want) || waits;
        let has_freed = reply.hold < before && pool > 0 && census.are_short(&level);
        let is_newly_short = group.note_short(caller, is_short) && census.can_give(&level);
        if has_freed && pool == 1 && level.floor == 0 {
            return (reply, Some(Press::Freed(census.first())));
        }
        let gap_ms = self.terms.gap_ms;
        let press = if has_freed {
            is_time(&mut group.freed_ms, now_ms, gap_ms).then_some(Press::Freed(None))
        } else {
            (is_newly_short && is_time(&mut group.short_ms, now_ms, gap_ms)).then_some(Press::Short)
        };
        (reply, press)
    }

    /// Applies the part of a call about a window whose units are lent in blocks.
    fn lend(&mut self, call: &GroupCall, window: WindowCall, caller: Caller) -> GroupReply {
        let now_ms = caller.now_ms;
        let group = group_of(&mut self.groups, call, caller, self.begun_ms);
        let learning_ms = group.learning_ms(&self.terms, now_ms);
        let begin_ms = group.window.map_or(0, |row| row.begin_ms);
        let mut reply = GroupReply { hold: 0, cap: u64::MAX, pool: 0, learning_ms, total: 0, differs: false };
        if now_ms < window.begin_ms || window.end_ms <= now_ms || window.begin_ms < begin_ms {
            // The caller's clock is ahead or behind: nothing is lent, and it asks again.
            return reply;
        }
        if begin_ms < window.begin_ms || group.window.is_none() {
            group.begin_window(window, self.terms.limbo_ms(0));
        }
        let known = group.holders.get(&caller.instance).map(|holder| holder.hold);
        group.tell(call, caller);
        let limits = group.limits(&self.members, caller);
        let unused: u64 = group.holders.values().map(|holder| holder.hold.saturating_sub(holder.used)).sum();
        let Some(row) = &mut group.window else { return reply };
        if known.is_none() {
            row.asserted = row.asserted.max(window.total);
        }
        row.lent += signed(call.has) - signed(known.unwrap_or(window.known));
        let total = row.total();
        let others = group.others(call, limits.lowest, total.saturating_sub(unused), now_ms);
        let left = limits.lowest.saturating_sub(total.saturating_add(others));
        let block_max = (limits.lowest / BLOCKS_MIN).min(left / (2 * limits.members)).max(1);
        let may_lend = learning_ms == 0 && !caller.leaves;
        let grant = if may_lend { call.want.saturating_sub(call.has).min(block_max).min(left) } else { 0 };
        if let Some(row) = &mut group.window {
            row.lent += signed(grant);
        }
        reply.hold = call.has + grant;
        reply.total = total + grant;
        reply.pool = signed(limits.lowest) - signed(reply.total) - signed(others);
        reply.differs = limits.lowest != limits.highest;
        group.note_hold(caller, reply.hold);
        reply
    }
}

/// Returns the group of a call. A member that holds units of a group that the store does not know shows that
/// the store has lost the group, so the group learns.
fn group_of<'a>(
    groups: &'a mut HashMap<GroupKey, GroupRow>,
    call: &GroupCall,
    caller: Caller,
    begun_ms: u64,
) -> &'a mut GroupRow {
    let was_told = call.window.map_or(call.has, |window| window.total) > 0;
    let is_lost = was_told && call.generation == caller.generation;
    let begun_ms = if is_lost { caller.now_ms } else { begun_ms };
    groups.entry(call.key.clone()).or_insert_with(|| GroupRow { begun_ms, ..GroupRow::default() })
}

impl MemberRow {
    /// Returns `true` if it has called in this generation.
    fn is_heard(&self) -> bool {
        self.state != MemberState::Earlier
    }

    fn is_living(&self, now_ms: u64) -> bool {
        self.is_heard() && self.state != MemberState::Left && now_ms < self.ends_ms
    }

    /// Returns how many units of `holder` are counted.
    fn counted(&self, holder: &Holder, cool_ms: u64, terms: &Terms, now_ms: u64) -> u64 {
        if self.is_living(now_ms) {
            return holder.hold;
        }
        let settle_ms = if self.state == MemberState::Left { 0 } else { terms.settle_ms };
        let limbo_ms = terms.limbo_ms(cool_ms) - (terms.settle_ms - settle_ms);
        let all_until_ms = self.ends_ms.saturating_add(limbo_ms);
        if now_ms < all_until_ms {
            return holder.hold;
        }
        let keeps = holder.keeps && self.state == MemberState::Joined;
        if keeps && now_ms < all_until_ms.saturating_add(more(terms.keep_ms)) {
            return holder.hold.min(kept(holder.limit, self.divisor));
        }
        0
    }
}

/// A group at one moment.
struct Census {
    /// The lowest and the highest limit that a living member affirms.
    limit: u64,
    limit_max: u64,
    /// Units of living members.
    held: u64,
    /// Units of members that are gone.
    gone: u64,
    /// Units in use, as members told last.
    used: u64,
    /// The wants of living members.
    wants: Vec<u64>,
    /// The living members besides the caller.
    others: Vec<(Instance, Holder)>,
}

/// The limits that the living members of a group affirm, and the number of these members.
struct Limits {
    lowest: u64,
    highest: u64,
    members: u64,
}

impl WindowRow {
    /// Units used or lent.
    fn total(&self) -> u64 {
        self.asserted.saturating_add_signed(self.lent)
    }
}

impl Census {
    /// Returns `true` if another member holds more than its share.
    fn can_give(&self, level: &Level) -> bool {
        self.others.iter().any(|(_, other)| other.hold > level.floor.max(1))
    }

    /// The member that has waited longest for its first unit.
    fn first(&self) -> Option<Instance> {
        let waiting = self.others.iter().filter(|(_, other)| other.hold == 0 && other.want > 0);
        waiting.min_by_key(|(instance, other)| (other.since_ms, *instance)).map(|(instance, _)| *instance)
    }

    /// Returns `true` if another member should hold more.
    fn are_short(&self, level: &Level) -> bool {
        self.others.iter().any(|(_, other)| {
            let want = other.want.min(self.limit);
            other.hold < level.least(want) || (level.floor == 0 && other.hold == 0 && want > 0)
        })
    }
}

#[cfg(test)]
impl Book {
    /// The units of a group at `now_ms`: the limit, those that members hold, and all others that are not in
    /// the pool.
    pub(super) fn balance(&self, key: &GroupKey, now_ms: u64) -> Option<[u64; 3]> {
        let group = self.groups.get(key)?;
        let others = if now_ms < group.others_until_ms { group.others } else { 0 };
        let caller = Caller { instance: 0, now_ms, leaves: false, generation: self.generation };
        if let Some(window) = group.window {
            let held: u64 = group.holders.values().map(|holder| holder.hold).sum();
            let rest = window.total().checked_sub(held)?;
            return Some([group.limits(&self.members, caller).lowest, held, rest + others]);
        }
        let census = group.census(&self.members, &self.terms, caller);
        let missing = self.missing(now_ms, group.cool_ms);
        let ghosts = if group.keeps { kept(census.limit_max, self.asserted.low) * missing } else { 0 };
        Some([census.limit, census.held, census.gone + ghosts + others])
    }
}

impl GroupRow {
    /// Notes what a member tells. Returns the units that it held by the book before.
    fn tell(&mut self, call: &GroupCall, caller: Caller) -> u64 {
        self.cool_ms = self.cool_ms.max(call.cool_ms);
        self.keeps |= call.keeps;
        let known = self.holders.get(&caller.instance).copied();
        let before = known.map_or(0, |known| known.hold);
        let is_alike = known.is_some_and(|known| (known.hold > 0) == (call.has > 0) && known.want > 0);
        let since_ms = known.filter(|_| is_alike).map_or(caller.now_ms, |known| known.since_ms);
        let is_short = known.is_some_and(|known| known.is_short);
        let GroupCall { has: hold, want, limit, keeps, used, .. } = *call;
        let settled = call.window.map_or(0, |window| window.settled);
        let told_ms = caller.now_ms;
        let holder = Holder { hold, want, limit, keeps, used, settled, told_ms, since_ms, is_short };
        self.holders.insert(caller.instance, holder);
        before
    }

    fn note_hold(&mut self, caller: Caller, hold: u64) {
        let Some(holder) = self.holders.get_mut(&caller.instance) else { return };
        if holder.hold == 0 && hold > 0 {
            holder.since_ms = caller.now_ms;
        }
        holder.hold = hold;
    }

    /// Returns the units that strangers use: what the provider counts more than the members have used.
    fn others(&mut self, call: &GroupCall, limit: u64, used: u64, now_ms: u64) -> u64 {
        if let Some(report) = call.report {
            self.others = limit.saturating_sub(report.remaining).saturating_sub(used);
            self.others_until_ms = now_ms.saturating_add(report.reset_in_ms);
        }
        if now_ms < self.others_until_ms { self.others } else { 0 }
    }

    /// Begins a window. Calls that were in transit at the end of the last one may count in it, so all that
    /// may have been count until their member tells how many were.
    fn begin_window(&mut self, window: WindowCall, limbo_ms: u64) {
        let mut lent = 0;
        if let Some(last) = self.window {
            for holder in self.holders.values_mut() {
                // Who has not told about the last window has used none of its units.
                let is_recent = holder.told_ms >= last.begin_ms;
                let ends_ms = if is_recent { last.end_ms } else { last.begin_ms };
                let may_count = window.begin_ms < ends_ms.saturating_add(limbo_ms);
                holder.hold = if may_count { holder.hold.saturating_sub(holder.settled) } else { 0 };
                (holder.used, holder.settled) = (0, 0);
                lent += signed(holder.hold);
            }
        }
        (self.others, self.others_until_ms) = (0, 0);
        self.window = Some(WindowRow { begin_ms: window.begin_ms, end_ms: window.end_ms, asserted: 0, lent });
    }

    /// The limits that living members affirm.
    fn limits(&self, members: &BTreeMap<Instance, MemberRow>, caller: Caller) -> Limits {
        let mut limits = Limits { lowest: u64::MAX, highest: 0, members: 0 };
        for (instance, holder) in &self.holders {
            let is_living = members.get(instance).is_some_and(|row| row.is_living(caller.now_ms));
            if is_living || *instance == caller.instance {
                limits.lowest = limits.lowest.min(holder.limit);
                limits.highest = limits.highest.max(holder.limit);
                limits.members += 1;
            }
        }
        limits
    }

    /// Notes if the caller holds less than its share. Returns `true` if that is new.
    fn note_short(&mut self, caller: Caller, is_short: bool) -> bool {
        let Some(holder) = self.holders.get_mut(&caller.instance) else { return false };
        let was_short = std::mem::replace(&mut holder.is_short, is_short);
        is_short && !was_short
    }

    fn learning_ms(&self, terms: &Terms, now_ms: u64) -> u64 {
        self.begun_ms.saturating_add(terms.learning_ms(self.cool_ms)).saturating_sub(now_ms)
    }

    fn census(&self, members: &BTreeMap<Instance, MemberRow>, terms: &Terms, caller: Caller) -> Census {
        let now_ms = caller.now_ms;
        let mut census = Census {
            limit: u64::MAX,
            limit_max: 0,
            held: 0,
            gone: 0,
            used: 0,
            wants: Vec::new(),
            others: Vec::new(),
        };
        for (instance, holder) in &self.holders {
            let Some(member) = members.get(instance) else { continue };
            if !member.is_living(now_ms) {
                let counted = member.counted(holder, self.cool_ms, terms, now_ms);
                census.gone += counted;
                census.used += holder.used.min(counted);
                continue;
            }
            census.used += holder.used;
            census.limit = census.limit.min(holder.limit);
            census.limit_max = census.limit_max.max(holder.limit);
            census.held += holder.hold;
            census.wants.push(holder.want);
            if *instance != caller.instance {
                census.others.push((*instance, *holder));
            }
        }
        if census.limit == u64::MAX {
            census.limit = 0;
        }
        for want in &mut census.wants {
            *want = (*want).min(census.limit);
        }
        census
    }
}

/// The facts by which units are granted.
struct Share<'a> {
    level: Level,
    census: &'a Census,
    pool: u64,
    now_ms: u64,
}

impl Share<'_> {
    /// Units that others lack to reach the level.
    fn lacking(&self) -> u64 {
        let lack = |(_, other): &(Instance, Holder)| self.level.least(other.want).saturating_sub(other.hold);
        self.census.others.iter().map(lack).sum()
    }

    /// Number of others above the level.
    fn above(&self) -> u64 {
        self.census.others.iter().filter(|(_, other)| other.hold > self.level.floor).count() as u64
    }

    /// Others that wait for their first unit and came before the caller.
    fn ahead(&self, group: &GroupRow, caller: Instance) -> u64 {
        let mine = group.holders.get(&caller).map_or(self.now_ms, |holder| holder.since_ms);
        let is_ahead =
            |(_, other): &&(Instance, Holder)| other.hold == 0 && other.want > 0 && other.since_ms < mine;
        self.census.others.iter().filter(is_ahead).count() as u64
    }

    /// Units granted to a member that holds `has`.
    fn grant(&self, group: &GroupRow, caller: Instance, has: u64, want: u64) -> u64 {
        if !self.level.is_contended {
            return want.saturating_sub(has).min(self.pool);
        }
        let least = self.level.least(want).saturating_sub(has).min(self.pool);
        let may_have_more = has + least == self.level.floor && self.level.most(want) > self.level.floor;
        let first = if self.level.floor == 0 { self.ahead(group, caller) } else { self.lacking() };
        let has_more = may_have_more && self.above() < self.level.extra && self.pool > least + first;
        least + u64::from(has_more)
    }

    /// The cap of a member that holds `has`.
    fn cap(&self, group: &GroupRow, caller: Instance, has: u64, want: u64, turn_ms: u64) -> u64 {
        if !self.level.is_contended {
            return u64::MAX;
        }
        let most = self.level.most(want);
        if has <= self.level.floor {
            return most;
        }
        if self.level.floor == 0 {
            let since_ms = group.holders.get(&caller).map_or(self.now_ms, |holder| holder.since_ms);
            let is_over = self.now_ms >= since_ms + turn_ms;
            let others_wait = self.census.others.iter().any(|(_, other)| other.hold == 0 && other.want > 0);
            return if is_over && others_wait && self.pool == 0 { 0 } else { most };
        }
        let are_too_many = self.above() + 1 > self.level.extra;
        if are_too_many && self.lacking() > self.pool { self.level.floor } else { most }
    }
}

/// Returns `true` if `last_ms` is this gap ago, and begins another one.
fn is_time(last_ms: &mut u64, now_ms: u64, gap_ms: u64) -> bool {
    let is_time = now_ms >= *last_ms + gap_ms;
    if is_time {
        *last_ms = now_ms;
    }
    is_time
}

/// Returns the lower of two numbers of which 0 means none.
fn lowest(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, one) | (one, 0) => one,
        _ => a.min(b),
    }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
