//! The judge: compares the ledgers of clients and providers.
//!
//! A gateway admits a call after its client has sent it and before it comes to the provider. Faults make this
//! time long, so no moment between them is taken for that of the call. A limit is exceeded for sure if more
//! calls than it allows were both sent and came within a window.

use std::collections::HashMap;

use egret_tests::timeline::Timeline;

use super::gateways::{BUCKET, BURST, CONCURRENT, FIXED, FIXED_S, SLIDING, TOTAL};
use super::ledger::{ATTEMPTS, Arrival, Call, Group, Outcome};
use super::plan::Fault;

const SECOND: u64 = 1_000_000_000;
/// The longest part of a run of calls for which a bucket is judged.
const BUCKET_WINDOW: u64 = 10 * SECOND;
/// Examples that are shown of what is wrong.
const EXAMPLES: usize = 5;

/// A fault that was played, and when.
#[derive(Debug, Clone)]
pub(crate) struct Played {
    pub(crate) fault: Fault,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

/// The time from the sending of a call to its arrival at the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) sent: u64,
    pub(crate) came: u64,
}

/// Claims that no call was lost, none sent twice without permission, and no limit exceeded.
pub(crate) fn judge(calls: &[Call], arrivals: &[Arrival], played: &[Played], line: &Timeline) {
    let by_id: HashMap<u64, &Call> = calls.iter().map(|call| (call.id, call)).collect();
    let mut attempts: HashMap<u64, usize> = HashMap::new();
    arrivals.iter().for_each(|arrival| *attempts.entry(arrival.id).or_default() += 1);
    claim_none("calls lost that a provider answered", &lost(&by_id, arrivals, played), line);
    claim_none("calls sent more often than allowed", &repeated(&by_id, &attempts), line);
    claim_none("responses that belong to no call", &wrong(calls, &attempts), line);
    for group in [Group::Sliding, Group::Bucket, Group::Fixed, Group::Total, Group::Concurrent] {
        let of: Vec<&Arrival> = arrivals
            .iter()
            .filter(|arrival| by_id.get(&arrival.id).is_some_and(|call| call.group == group))
            .collect();
        let spans: Vec<Span> =
            of.iter().map(|arrival| Span { sent: by_id[&arrival.id].sent, came: arrival.came }).collect();
        let (most, limit) = match group {
            Group::Sliding => (most_within(&spans, SECOND), SLIDING),
            Group::Bucket => (BURST + lacking(&spans, BUCKET), BURST),
            Group::Fixed => (most_by_the_clock(&spans, FIXED_S * SECOND), FIXED),
            Group::Total => (spans.len() as u64, TOTAL),
            _ => (most_at_once(&of, &by_id), CONCURRENT),
        };
        let figure = format!("{}: worst {most} of {limit}, {} calls", group.name(), spans.len());
        line.claim(most <= limit && !spans.is_empty(), figure);
    }
}

fn claim_none(what: &str, found: &[String], line: &Timeline) {
    let examples =
        if found.is_empty() { String::new() } else { format!(" {:#?}", &found[..found.len().min(EXAMPLES)]) };
    line.claim(found.is_empty(), format!("{what}: {}{examples}", found.len()));
}

/// Calls whose response a provider has sent, while neither it nor the gateway was killed, stopped or cut off,
/// and whose client did not get it.
fn lost(by_id: &HashMap<u64, &Call>, arrivals: &[Arrival], played: &[Played]) -> Vec<String> {
    let answered = arrivals.iter().filter(|arrival| arrival.answered.is_some());
    let lost = answered.filter_map(|arrival| {
        let call = by_id.get(&arrival.id)?;
        let is_excused = played.iter().any(|played| {
            let overlaps = played.begun <= call.ended && call.sent <= played.ended;
            overlaps && played.fault.excuses(call.gateway, arrival.provider)
        });
        let is_lost = call.outcome != Outcome::Answered && !is_excused;
        is_lost.then(|| format!("{call:?} {arrival:?}"))
    });
    lost.collect()
}

fn repeated(by_id: &HashMap<u64, &Call>, attempts: &HashMap<u64, usize>) -> Vec<String> {
    let repeated = attempts.iter().filter_map(|(id, times)| {
        let call = by_id.get(id)?;
        let allowed = if call.group.may_repeat() { ATTEMPTS } else { 1 };
        (*times > allowed).then(|| format!("{times} times: {call:?}"))
    });
    repeated.collect()
}

/// Responses to another call, or to one that no provider has seen.
fn wrong(calls: &[Call], attempts: &HashMap<u64, usize>) -> Vec<String> {
    let is_wrong = |call: &&Call| match call.outcome {
        Outcome::Wrong(_) => true,
        Outcome::Answered => !attempts.contains_key(&call.id),
        _ => false,
    };
    calls.iter().filter(is_wrong).map(|call| format!("{call:?}")).collect()
}

/// The most calls that were sent and came within any window of this length, which ends with the arrival of
/// one of them.
fn most_within(spans: &[Span], window: u64) -> u64 {
    let within = |last: &Span| {
        let begins = last.came.saturating_sub(window);
        let recent = spans[..spans.partition_point(|span| span.came <= last.came)].iter().rev();
        let recent = recent.take_while(|span| span.came > begins);
        recent.filter(|span| span.sent > begins).count() as u64
    };
    spans.iter().map(within).max().unwrap_or(0)
}

/// The most calls that were sent and came within one window of the clock.
fn most_by_the_clock(spans: &[Span], window: u64) -> u64 {
    let mut windows: HashMap<u64, u64> = HashMap::new();
    for span in spans.iter().filter(|span| span.sent / window == span.came / window) {
        *windows.entry(span.came / window).or_default() += 1;
    }
    windows.into_values().max().unwrap_or(0)
}

/// The tokens beyond those that a full bucket and its refill give, in the worst time.
fn lacking(spans: &[Span], per_second: u64) -> u64 {
    let mut worst = 0;
    for (at, last) in spans.iter().enumerate() {
        let recent = spans[..=at].iter().rev().take_while(|span| span.came + BUCKET_WINDOW > last.came);
        let mut sent: Vec<u64> = recent.map(|span| span.sent).collect();
        sent.sort_unstable_by(|one, other| other.cmp(one));
        for (count, begins) in (1_u64..).zip(sent) {
            let refilled = (last.came - begins.min(last.came)) * per_second / SECOND;
            // A token that is refilled in part at both ends counts for neither.
            worst = worst.max(count.saturating_sub(BURST + refilled + 1));
        }
    }
    worst
}

/// The most calls at once among those that were answered: so long their gateway held a unit.
fn most_at_once(arrivals: &[&Arrival], by_id: &HashMap<u64, &Call>) -> u64 {
    let mut changes = Vec::new();
    for arrival in arrivals.iter().filter(|arrival| by_id[&arrival.id].outcome == Outcome::Answered) {
        let Some(answered) = arrival.answered else { continue };
        changes.extend([(arrival.came, 1), (answered, -1)]);
    }
    changes.sort_unstable();
    let levels = changes.iter().scan(0_i64, |level, (_, change)| {
        *level += change;
        Some(*level)
    });
    u64::try_from(levels.max().unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::network::Part;

    fn spans(times_ms: &[(u64, u64)]) -> Vec<Span> {
        let span =
            |(sent, came): &(u64, u64)| Span { sent: sent * SECOND / 1_000, came: came * SECOND / 1_000 };
        times_ms.iter().map(span).collect()
    }

    #[test]
    fn a_call_that_was_under_way_for_long_counts_for_no_window() {
        let quick = spans(&[(100, 101), (900, 901), (1_050, 1_051)]);
        assert_eq!(most_within(&quick, SECOND), 3);
        assert_eq!(most_within(&spans(&[(100, 1_040), (900, 1_045), (1_110, 1_120)]), SECOND), 2);
        assert_eq!(most_by_the_clock(&quick, SECOND), 2);
        assert_eq!(most_by_the_clock(&spans(&[(900, 1_001), (1_002, 1_003)]), SECOND), 1);
    }

    #[test]
    fn a_bucket_gives_its_burst_and_its_refill() {
        let burst: Vec<(u64, u64)> = (0..BURST).map(|at| (1_000 + at, 1_000 + at)).collect();
        assert_eq!(lacking(&spans(&burst), BUCKET), 0);
        let twice =
            [burst.clone(), burst.iter().map(|(sent, came)| (sent + 20, came + 20)).collect()].concat();
        assert!(lacking(&spans(&twice), BUCKET) > 0);
    }

    #[test]
    fn lost_repeated_and_mixed_up_calls_are_found() {
        let call = |id, outcome| Call { id, gateway: 1, group: Group::Posts, sent: 10, ended: 20, outcome };
        let calls =
            [call(1, Outcome::Answered), call(2, Outcome::Lost(String::new())), call(3, Outcome::Answered)];
        let came = |id, came| Arrival { id, provider: 0, came, answered: Some(came + 1) };
        let arrivals = [came(1, 11), came(2, 12), came(1, 13)];
        let by_id: HashMap<u64, &Call> = calls.iter().map(|call| (call.id, call)).collect();
        let attempts = HashMap::from([(1, 2), (2, 1)]);
        let played = |fault, begun| [Played { fault, begun, ended: begun + 1 }];
        let killed = || Fault::Killed(Part::Gateway(1));
        assert_eq!(lost(&by_id, &arrivals, &[]).len(), 1);
        assert_eq!(lost(&by_id, &arrivals, &played(killed(), 15)).len(), 0);
        assert_eq!(lost(&by_id, &arrivals, &played(killed(), 21)).len(), 1, "it was over before");
        assert_eq!(lost(&by_id, &arrivals, &played(Fault::HandedOver(1), 15)).len(), 1);
        assert_eq!(repeated(&by_id, &attempts).len(), 1);
        assert_eq!(wrong(&calls, &attempts).len(), 1, "no provider has seen the third");
    }
}
