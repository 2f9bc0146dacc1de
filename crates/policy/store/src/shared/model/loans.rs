//! The units that the store lent in long windows, and those that a loss of its state has made it forget.
//! By no other way may the provider count more than its limit.

use std::collections::{BTreeMap, HashSet};

use crate::shared::{Call, CallReply};

/// The place of a reply among those about its window.
pub type ReplyIndex = usize;

#[derive(Debug, Default)]
pub struct Loans {
    windows: BTreeMap<u64, WindowLoans>,
}

#[derive(Debug, Default)]
struct WindowLoans {
    replies: Vec<Loan>,
    generations: BTreeMap<u64, Audience>,
    /// Calls that this window counts, and that were sent in an earlier one: by member.
    carried: BTreeMap<u64, u64>,
}

/// A reply about a window.
#[derive(Debug)]
struct Loan {
    instance: u64,
    generation: u64,
    units: u64,
    has_arrived: bool,
}

/// The members that a generation has heard of.
#[derive(Debug, Default)]
struct Audience {
    heard: HashSet<u64>,
    /// The members that it had heard of when it began to lend, if it has.
    survivors: Option<HashSet<u64>>,
}

impl Loans {
    /// Notes a reply about a window that `call` is about. Returns its place.
    pub fn note(&mut self, call: &Call, reply: &CallReply) -> Option<(u64, ReplyIndex)> {
        let (group, units) = (call.groups.first()?, reply.groups.first()?);
        let begin_ms = group.window.filter(|window| reply.time_ms < window.end_ms)?.begin_ms;
        let window = self.windows.entry(begin_ms).or_default();
        let audience = window.generations.entry(reply.generation).or_default();
        audience.heard.insert(call.instance);
        let units = units.hold.saturating_sub(group.has);
        if units > 0 && audience.survivors.is_none() {
            audience.survivors = Some(audience.heard.clone());
        }
        let CallReply { generation, .. } = *reply;
        window.replies.push(Loan { instance: call.instance, generation, units, has_arrived: false });
        Some((begin_ms, window.replies.len() - 1))
    }

    /// Notes that a reply has reached its member in time.
    pub fn arrived(&mut self, (begin_ms, index): (u64, ReplyIndex)) {
        if let Some(window) = self.windows.get_mut(&begin_ms) {
            window.replies[index].has_arrived = true;
        }
    }

    /// Notes a call that was sent in an earlier window than the one that counts it.
    pub fn carried(&mut self, begin_ms: u64, instance: u64) {
        *self.windows.entry(begin_ms).or_default().carried.entry(instance).or_default() += 1;
    }

    /// Units of a window that a generation could not know of when it began to lend.
    pub fn lost(&self, begin_ms: u64) -> u64 {
        let Some(window) = self.windows.get(&begin_ms) else { return 0 };
        let last = self.windows.range(..begin_ms).next_back().map(|(_, last)| last);
        let mut forgotten = HashSet::new();
        let mut unheard = HashSet::new();
        for (generation, audience) in &window.generations {
            let Some(survivors) = &audience.survivors else { continue };
            forgotten.extend(window.forgotten(*generation, survivors));
            let before = last.and_then(|last| last.generations.get(generation));
            let is_known = |instance: &&u64| {
                survivors.contains(*instance) || before.is_some_and(|before| before.heard.contains(*instance))
            };
            unheard.extend(window.carried.keys().filter(|instance| !is_known(instance)));
        }
        let lent: u64 = forgotten.into_iter().map(|index: ReplyIndex| window.replies[index].units).sum();
        lent + unheard.into_iter().map(|instance| window.carried[instance]).sum::<u64>()
    }
}

impl WindowLoans {
    /// The loans that arrived after the newest total that a survivor knows, at others.
    fn forgotten(&self, generation: u64, survivors: &HashSet<u64>) -> Vec<ReplyIndex> {
        let earlier = || {
            self.replies
                .iter()
                .enumerate()
                .filter(|(_, loan)| loan.has_arrived && loan.generation != generation)
        };
        let newest =
            earlier().filter(|(_, loan)| survivors.contains(&loan.instance)).map(|(index, _)| index).max();
        earlier()
            .filter(|(index, loan)| {
                newest.is_none_or(|newest| *index > newest) && !survivors.contains(&loan.instance)
            })
            .map(|(index, _)| index)
            .collect()
    }
}
