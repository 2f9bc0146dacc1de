//! The verdict on a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use egret_tests::timeline::Timeline;
use egret_tests::trend::{growth, lowest, median};

use super::descriptors::{COLLECTOR, by_kind, connections_to};
use super::figures::{Phase, Sample};
use super::gateway::World;
use super::load::Load;

/// Growth of memory that is allowed, if tables had [`FILLED`] to fill before. With less time it is more, in
/// the same proportion, because they still fill.
const GROWTH_MAX_KIB: f64 = 1_024.0;
/// The time that the first part of a run takes, unless the run is short.
pub(crate) const FILLED: Duration = Duration::from_mins(10);
/// Exporters with a connection of their own: the collector's and the pager's.
const EXPORTERS: u64 = 2;
/// Parts of the time that is judged, of which the lowest figure counts: what diagnoses have in hand, and what
/// a change of the config takes for a moment, is no growth.
const PARTS: usize = 20;
/// Growth that is allowed of the time of a call, as a multiple of that of a call without the gateway: other
/// programs slow down both.
const SLOWER_MAX: f64 = 1.5;

/// Figures of the gateway when nobody calls.
#[derive(Debug, Clone)]
pub(crate) struct Rest {
    /// Time since the begin, in seconds.
    at: f64,
    pub(crate) memory: u64,
    /// Numbers of descriptors by kind, without the connections of exporters.
    descriptors: BTreeMap<String, u64>,
    /// Connections of exporters, which the collector closes when it has waited for long.
    of_exporters: u64,
    threads: u64,
}

impl Rest {
    fn count(&self) -> u64 {
        self.descriptors.values().sum()
    }

    /// The kinds of descriptors of which there is another number later, as a text.
    fn differences(&self, later: &Self) -> String {
        let kinds: BTreeSet<&String> = self.descriptors.keys().chain(later.descriptors.keys()).collect();
        let number = |rest: &Self, kind: &String| rest.descriptors.get(kind).copied().unwrap_or(0);
        let pairs = kinds.into_iter().map(|kind| (kind, number(self, kind), number(later, kind)));
        let others = pairs.filter(|(_, before, after)| before != after);
        others.map(|(kind, before, after)| format!(" ({kind}: {before}, then {after})")).collect()
    }

    /// Reads it.
    pub(crate) fn read(world: &World, begun: Instant) -> Self {
        let process = world.egret().process();
        let mut descriptors = by_kind(process, &world.servers());
        let of_exporters = descriptors.remove(&connections_to(COLLECTOR)).unwrap_or(0);
        let at = begun.elapsed().as_secs_f64();
        Self { at, memory: process.resident_bytes(), descriptors, of_exporters, threads: process.threads() }
    }
}

/// Claims that nothing has grown between the moments of rest. Tables had the time `filled` before the first.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
pub(crate) fn judge(
    samples: &[Sample],
    (rests, filled): (&[Rest], Duration),
    load: &Load,
    world: &World,
    line: &Timeline,
) {
    let judged: Vec<&Sample> = samples.iter().filter(|sample| sample.phase == Phase::Judged).collect();
    let (first, last) = (&rests[0], &rests[rests.len() - 1]);
    judge_memory(&judged, rests, filled, line);
    line.claim(
        first.descriptors == last.descriptors,
        format!("descriptors at rest: {}, then {}{}", first.count(), last.count(), first.differences(last)),
    );
    let most = rests.iter().map(|rest| rest.of_exporters).max().unwrap_or(0);
    line.claim(
        most <= EXPORTERS,
        format!("connections of exporters at rest: {most} at most, of {EXPORTERS} exporters"),
    );
    line.claim(
        first.threads == last.threads,
        format!("threads at rest: {}, then {}", first.threads, last.threads),
    );
    let ratio = |part: &[&Sample]| {
        let each = part.iter().filter(|sample| sample.direct.p50 > 0);
        median(each.map(|sample| sample.through.p50 as f64 / sample.direct.p50 as f64).collect())
    };
    let third = judged.len() / 3;
    let [early, late] = [ratio(&judged[..third]), ratio(&judged[judged.len() - third..])];
    line.claim(
        late <= early * SLOWER_MAX,
        format!("median call: {early:.2} times that without Egret in the first third, {late:.2} in the last"),
    );
    let log = world.egret().log();
    let panics: Vec<&str> = log.lines().filter(|line| line.contains("panicked")).collect();
    line.claim(panics.is_empty(), format!("panics: {} {panics:?}", panics.len()));
    let (failed, texts) = load.failures();
    line.claim(failed == 0, format!("visits that failed: {failed} {texts:#?}"));
}

/// Claims that memory has grown by no more than tables do that had the time `filled` to fill.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn judge_memory(judged: &[&Sample], rests: &[Rest], filled: Duration, line: &Timeline) {
    let (first, last) = (rests[0].at, rests[rests.len() - 1].at);
    let at_rest = rests.iter().map(|rest| (rest.at, rest.memory));
    let under_load = judged.iter().map(|sample| (sample.at, sample.memory));
    let mut points: Vec<(f64, f64)> =
        at_rest.chain(under_load).map(|(at, memory)| (at, (memory >> 10) as f64)).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let lowest = lowest(&points, PARTS);
    let floor = |part: &[(f64, f64)]| part.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let (grown, max) = (growth(&lowest), growth_max_kib(filled));
    line.claim(
        grown <= max,
        format!(
            "memory: {grown:+.0} KiB in the {:.1} minutes after the first {:.1}, at most {max:.0} ({GROWTH_MAX_KIB} after the \
             first {}); slope by Theil and Sen of the lowest of each of {} parts; floor of the first half {:.0} KiB, \
             of the second {:.0} KiB",
            (last - first) / 60.0,
            filled.as_secs_f64() / 60.0,
            FILLED.as_secs() / 60,
            lowest.len(),
            floor(&lowest[..lowest.len() / 2]),
            floor(&lowest[lowest.len() / 2..]),
        ),
    );
}

/// Growth that is allowed after tables had this time to fill.
fn growth_max_kib(filled: Duration) -> f64 {
    GROWTH_MAX_KIB * (FILLED.as_secs_f64() / filled.as_secs_f64()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_runs_may_grow_by_more() {
        for (minutes, kib) in [(1, "10240"), (5, "2048"), (10, "1024"), (20, "1024")] {
            assert_eq!(format!("{:.0}", growth_max_kib(Duration::from_mins(minutes))), kib);
        }
    }
}
