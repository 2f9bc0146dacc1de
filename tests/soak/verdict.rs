//! The verdict on a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use egret_tests::process::Process;
use egret_tests::timeline::Timeline;
use egret_tests::trend::{growth, lowest, median};

use super::figures::{Phase, Sample};
use super::gateway::World;
use super::load::Load;

/// Growth of memory that is allowed.
const GROWTH_MAX_KIB: f64 = 1_024.0;
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
    /// Numbers of descriptors by what they refer to.
    pub(crate) descriptors: BTreeMap<String, u64>,
    pub(crate) threads: u64,
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
    pub(crate) fn read(process: &Process, begun: Instant) -> Self {
        let mut descriptors = BTreeMap::new();
        for file in process.open_files() {
            // Files that are rotated have another name later, and each socket has a number of its own.
            let kind = file.split_once(['[', ' ']).map_or(&*file, |(kind, _)| kind);
            let kind = Path::new(kind)
                .parent()
                .filter(|_| kind.starts_with('/'))
                .map_or(kind, |parent| parent.to_str().unwrap());
            *descriptors.entry(kind.to_owned()).or_default() += 1;
        }
        let at = begun.elapsed().as_secs_f64();
        Self { at, memory: process.resident_bytes(), descriptors, threads: process.threads() }
    }
}

/// Claims that nothing has grown between the moments of rest.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
pub(crate) fn judge(samples: &[Sample], rests: &[Rest], load: &Load, world: &World, line: &Timeline) {
    let judged: Vec<&Sample> = samples.iter().filter(|sample| sample.phase == Phase::Judged).collect();
    let (first, last) = (&rests[0], &rests[rests.len() - 1]);
    let at_rest = rests.iter().map(|rest| (rest.at, rest.memory));
    let under_load = judged.iter().map(|sample| (sample.at, sample.memory));
    let mut points: Vec<(f64, f64)> =
        at_rest.chain(under_load).map(|(at, memory)| (at, (memory >> 10) as f64)).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let lowest = lowest(&points, PARTS);
    let floor = |part: &[(f64, f64)]| part.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let grown = growth(&lowest);
    line.claim(
        grown <= GROWTH_MAX_KIB,
        format!(
            "memory: {grown:+.0} KiB in {:.1} minutes, at most 1,024 (slope by Theil and Sen of the lowest of each of {} \
             parts); floor of the first half {:.0} KiB, of the second {:.0} KiB",
            (last.at - first.at) / 60.0,
            lowest.len(),
            floor(&lowest[..lowest.len() / 2]),
            floor(&lowest[lowest.len() / 2..]),
        ),
    );
    line.claim(
        first.descriptors == last.descriptors,
        format!("descriptors at rest: {}, then {}{}", first.count(), last.count(), first.differences(last)),
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
