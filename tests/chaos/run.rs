//! The run: faults one after the other, each followed by the time until everything works again.

use std::thread;
use std::time::{Duration, Instant};

use egret_tests::process::raise_open_files;
use egret_tests::random::Random;
use egret_tests::timeline::{Timeline, pass};
use egret_tests::trend::median;
use egret_tests::wait::SetAtEnd;

use super::callers::Callers;
use super::faults::Begun;
use super::judge::{Played, judge};
use super::ledger::{Group, Outcome, now};
use super::network::GATEWAYS;
use super::plan::deck;
use super::store::Store;
use super::world::World;

/// Length of the run in minutes. The deck of faults that is begun is played to its end.
const MINUTES: &str = "EGRET_CHAOS_MINUTES";
/// The seed of the plan; without it, one that differs from run to run.
const SEED: &str = "EGRET_CHAOS_SEED";

/// Time between two changes of a gateway's config.
const CHANGE: Duration = Duration::from_millis(500);
/// Longest time until every gateway serves every kind of calls again, besides that for which the machine is
/// late.
const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// The same for shared quotas, from when the store takes writes again. Units of a gateway that is gone rest
/// for seconds. A store that may have lost its state learns for ten seconds and a window what gateways hold
/// before it lends, also if it was only slow, as on a busy machine.
const LENT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for them, and the time between two looks.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Kinds of calls that must succeed again: without a quota, and of a quota whose units come back each second.
const RECOVERED: [Group; 4] = [Group::Plain, Group::Posts, Group::Secure, Group::SecurePosts];
const LENT: [Group; 2] = [Group::Sliding, Group::Concurrent];

#[test]
fn calls_and_limits_are_kept_through_faults() {
    raise_open_files();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let length = Duration::from_secs_f64(60.0 * number(MINUTES).unwrap_or(1.0));
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| now() / 1_000_000_000);
    let line = Timeline::new("chaos");
    line.say(format!("{:.1} minutes, SEED={seed} repeats the plan", length.as_secs_f64() / 60.0));
    let world = World::start();
    let (mut played, mut recoveries) = (Vec::new(), Recoveries::default());
    thread::scope(|scope| {
        let _ends = SetAtEnd(&world.callers.is_over);
        for (client, target) in Callers::all().enumerate() {
            let callers = &world.callers;
            scope.spawn(move || callers.call(target, Random::of(seed, 1_000 + client as u64)));
        }
        scope.spawn(|| change_configs(&world));
        scope.spawn(|| world.lateness.measure(&world.callers.is_over));
        recoveries.wait(&world, &[], &line);
        let (begun, mut random) = (Instant::now(), Random::of(seed, 0));
        while begun.elapsed() < length {
            for planned in deck(&mut random) {
                line.say(format!("{:?} for {:.1} s", planned.fault, planned.lasts.as_secs_f64()));
                let begun = now();
                let fault = Begun::begin(&planned.fault, &world);
                pass(planned.lasts);
                fault.end(&world);
                let ended = now();
                played.push(Played { fault: planned.fault.clone(), begun, ended });
                recoveries.wait(&world, &played, &line);
            }
        }
    });
    let calls = world.callers.calls.all();
    let arrivals = world.providers.lock().unwrap().arrivals();
    let answered = calls.iter().filter(|call| call.outcome == Outcome::Answered).count();
    line.say(format!(
        "{} faults, {} calls, {answered} answered, {} arrivals",
        played.len(),
        calls.len(),
        arrivals.len()
    ));
    recoveries.say(&line);
    judge(&calls, &arrivals, &played, &line);
    for (number, gateway) in world.gateways.iter().enumerate() {
        world.note(number, "the end", true);
        let panics = gateway.lock().unwrap().panics();
        line.claim(panics == 0, format!("panics of gateway {number}: {panics}"));
    }
}

/// The times until every gateway served every kind of calls again.
#[derive(Debug, Default)]
struct Recoveries {
    calls: Vec<f64>,
    quotas: Vec<f64>,
}

impl Recoveries {
    /// Waits for that, and claims that it took no longer than allowed since the last fault.
    fn wait(&mut self, world: &World, played: &[Played], line: &Timeline) {
        let ended = played.last().map_or_else(now, |played| played.ended);
        self.calls.push(recover(world, "calls", &RECOVERED, (ended, RECOVERY_MAX), line));
        let whole = until(ended, || Store::is_whole().then(now)).unwrap_or(ended);
        if since(ended, whole) > RECOVERY_MAX {
            line.say(format!(
                "  the store takes writes {:.1} s after its fault",
                since(ended, whole).as_secs_f64()
            ));
        }
        self.quotas.push(recover(world, "quotas", &LENT, (whole, LENT_MAX), line));
    }

    fn say(&self, line: &Timeline) {
        for (what, times) in [("calls", &self.calls), ("quotas", &self.quotas)] {
            let longest = times.iter().copied().fold(0.0, f64::max);
            let soon = times.iter().filter(|time| **time <= RECOVERY_MAX.as_secs_f64()).count();
            let (median, all) = (median(times.clone()), times.len());
            line.say(format!(
                "{what} work again: median {median:.1} s, longest {longest:.1} s, {soon} of {all} within 5 s"
            ));
        }
    }
}

/// Waits until every gateway serves these kinds of calls, and claims that it took no longer than a time since
/// a moment, and than the machine was late meanwhile. Returns the time in seconds.
fn recover(
    world: &World,
    what: &str,
    groups: &[Group],
    (from, max): (u64, Duration),
    line: &Timeline,
) -> f64 {
    let calls = &world.callers.calls;
    let mut missing: Vec<(usize, Group)> =
        (0..GATEWAYS).flat_map(|gateway| groups.iter().map(move |group| (gateway, *group))).collect();
    let (mut last, late) = (None, world.lateness.total());
    let took = until(from, || {
        last = missing.last().copied().or(last);
        missing.retain(|(gateway, group)| !calls.has_answered(*gateway, *group, from));
        missing.is_empty().then(now)
    });
    let took = since(from, took.unwrap_or_else(now));
    let late = world.lateness.total().saturating_sub(late);
    let shown: String = missing.iter().map(|(gateway, group)| calls.last(*gateway, *group)).collect();
    let figure = format!(
        "  {what} work after {:.1} s, last {last:?}; the machine was late by {:.1} s{shown}",
        took.as_secs_f64(),
        late.as_secs_f64()
    );
    let is_soon = took <= max + late;
    if !is_soon {
        (0..GATEWAYS).for_each(|number| world.note(number, &figure, false));
    }
    line.claim(is_soon, figure);
    took.as_secs_f64()
}

/// Looks until there is something, for [`PATIENCE`] since a moment at most.
fn until<T>(from: u64, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let found = look();
        if found.is_some() || since(from, now()) >= PATIENCE {
            return found;
        }
        pass(LOOK_AGAIN);
    }
}

fn since(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

/// Changes the config of each gateway twice a second.
fn change_configs(world: &World) {
    while !world.callers.is_over.load(std::sync::atomic::Ordering::SeqCst) {
        world.gateways.iter().for_each(|gateway| gateway.lock().unwrap().change());
        pass(CHANGE);
    }
}
