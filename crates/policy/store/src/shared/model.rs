//! The protocol in a deterministic world, without any I/O. Histories are drawn at random: loads, limits, and
//! faults of gateways, network and store. In none of them does a unit exist twice, or does the provider count
//! more than its limit; and after the faults everybody is served again.
//!
//! `EGRET_MODEL_HISTORIES` sets the number of histories, and `PROPTEST_RNG_SEED` the seed that they are drawn
//! from. Without them, the same few are played each time. `make model` plays many new ones.

#![expect(clippy::cast_precision_loss, reason = "the numbers are small")]

mod allocator;
mod invariants;
mod loans;
mod process;
mod provider;
mod shares;
mod world;

use std::str::FromStr;
use std::{panic, thread};

use allocator::Allocator;
use process::Load;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestError, TestRunner};
use provider::{Kind, LONG_WINDOW_MS};
use shares::Shares;
use world::{Fault, World};

use super::{AllocatorReply, Call, GroupCall, View};

/// Number of histories if the environment has none.
const HISTORIES: u32 = 50;
/// The seed if the environment has none.
const SEED: u64 = 19;
/// Threads that play them. Each has a part of its own, whatever the number of processors.
const THREADS: u32 = 4;
/// Faults happen in this time.
const FAULTS_MS: u64 = 25_000;
/// Afterwards, all that the faults have blocked comes back in this time.
const CALM_MS: u64 = 45_000;
/// The time that is measured at the end; a multiple of the long window.
const MEASURED_MS: u64 = 60_000;

#[derive(Debug, Clone)]
struct History {
    kind: Kind,
    limit: u64,
    other_limit: u64,
    members: usize,
    seed: u64,
    loss: u64,
    faults: Vec<(u64, Fault)>,
}

/// Plays the histories of one thread. Returns the number of those that it played.
fn play_part(thread: u32) -> u32 {
    let cases = from_env("EGRET_MODEL_HISTORIES").unwrap_or(HISTORIES).div_ceil(THREADS);
    let rng_seed = RngSeed::Fixed(from_env("PROPTEST_RNG_SEED").unwrap_or(SEED) + u64::from(thread));
    let config = ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&history(), |history| {
        play(&history).map_err(TestCaseError::fail)?;
        Ok(())
    });
    match result {
        Ok(()) => cases,
        Err(TestError::Fail(reason, history)) => panic!("{reason}: {history:?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

fn from_env<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Sliding),
        1 => Just(Kind::Fixed),
        2 => Just(Kind::Bucket),
        1 => Just(Kind::Concurrency),
        3 => Just(Kind::Blocks),
    ]
}

fn load() -> impl Strategy<Value = Load> {
    prop_oneof![Just(Load::All), Just(Load::Arrivals), Just(Load::Idle)]
}

/// A fault. The first gateway is spared most of them: a store that loses everything can learn only from a
/// gateway that is still there.
fn fault(kind: Kind, members: usize, limits: [u64; 2]) -> BoxedStrategy<Fault> {
    let slot = 1..members;
    let any = 0..members;
    let for_ms = prop_oneof![0_u64..1_000, 0_u64..12_000];
    let step = prop_oneof![-40_000_i64..40_000, -2_000_i64..2_000];
    let stop = (slot.clone(), for_ms.clone()).prop_map(|(slot, for_ms)| Fault::Stop { slot, for_ms });
    let cut = (slot.clone(), for_ms.clone()).prop_map(|(slot, for_ms)| Fault::Cut { slot, for_ms });
    let kill = (slot.clone(), for_ms.clone()).prop_map(|(slot, down_ms)| Fault::Kill { slot, down_ms });
    let restart =
        (slot, 0..2_usize).prop_map(move |(slot, index)| Fault::Restart { slot, limit: limits[index] });
    let away = for_ms.prop_map(|for_ms| Fault::Away { for_ms });
    let failover = (0_u64..1_000).prop_map(|lost_ms| Fault::Failover { lost_ms });
    let load = (any, load()).prop_map(|(slot, load)| Fault::Load { slot, load });
    // The windows of the provider follow its own clock.
    let has_steps = !matches!(kind, Kind::Fixed | Kind::Blocks);
    let step = step.prop_map(move |by_ms| Fault::Step { by_ms: if has_steps { by_ms } else { 0 } });
    prop_oneof![
        3 => kill, 2 => restart, 2 => stop, 3 => cut, 1 => away, 2 => failover, 1 => Just(Fault::Empty), 1 => step,
        3 => load,
    ]
    .boxed()
}

fn history() -> impl Strategy<Value = History> {
    let limit = || prop_oneof![Just(1_u64), Just(5), Just(20), Just(100), Just(300)];
    let shape = (kind(), limit(), limit(), 2_usize..9, any::<u64>(), prop_oneof![Just(0_u64), 0_u64..200]);
    shape.prop_flat_map(|(kind, limit, other_limit, members, seed, loss)| {
        let faults = prop::collection::vec((0..FAULTS_MS, fault(kind, members, [limit, other_limit])), 0..8);
        faults.prop_map(move |faults| History { kind, limit, other_limit, members, seed, loss, faults })
    })
}

/// Plays a history. Returns the share of the allowance used at its end, and the calls to the store of each
/// gateway and second.
fn play(history: &History) -> Result<(f64, f64), String> {
    let History { kind, limit, other_limit, members, seed, .. } = *history;
    let mut world = World::new(kind, limit, limit.max(other_limit), members, seed);
    world.loss = history.loss;
    for &(at_ms, fault) in &history.faults {
        if !matches!(fault, Fault::Kill { slot, .. } | Fault::Restart { slot, .. } if slot >= members) {
            world.plan(at_ms, fault);
        }
    }
    world.run_until(FAULTS_MS + 12_000)?;
    world.loss = 0;
    for slot in 0..members {
        world.plan(0, Fault::Load { slot, load: Load::All });
        world.plan(1, Fault::Restart { slot, limit });
    }
    let measured_from_ms = (FAULTS_MS + 12_000 + CALM_MS).next_multiple_of(LONG_WINDOW_MS);
    world.run_until(measured_from_ms)?;
    let (calls, counted, served) = (world.calls, world.provider.calls, world.served.clone());
    let windows_before = world.provider.windows.len();
    world.run_until(measured_from_ms + MEASURED_MS)?;
    let starved = (0..members).find(|&slot| world.served[slot] == served[slot]);
    if let Some(slot) = starved.filter(|_| kind != Kind::Blocks) {
        return Err(format!("member {slot} was not served"));
    }
    // The member that asks first has the units of a long window. Each may leave one of them.
    let wasted =
        world.provider.windows[windows_before..].iter().find(|&&count| count + (members as u64) < limit);
    if let Some(count) = wasted.filter(|_| kind == Kind::Blocks) {
        return Err(format!("only {count} of {limit} were used"));
    }
    let windows = (MEASURED_MS / kind.window_ms()) as f64;
    let used = (world.provider.calls - counted) as f64 / (limit as f64 * windows);
    let rate = (world.calls - calls) as f64 / (members as f64 * (MEASURED_MS / 1_000) as f64);
    Ok((used, rate))
}

#[test]
fn model_histories_never_exceed_the_limit_and_starve_nobody() {
    let played: u32 = thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || play_part(thread))).collect();
        parts.into_iter().map(|part| part.join().unwrap_or_else(|panic| panic::resume_unwind(panic))).sum()
    });
    println!("{played} histories: never above the limit, nobody starved");
}

/// Histories in which a rule was once broken.
#[test]
fn model_histories_that_once_failed_hold() {
    let bucket = |members| {
        let idle = (0..members).filter(|slot| *slot != 1);
        let mut faults: Vec<_> = idle.map(|slot| (10, Fault::Load { slot, load: Load::Idle })).collect();
        faults.push((12_000, Fault::Cut { slot: 1, for_ms: 12_000 }));
        faults.push((14_000, Fault::Load { slot: 0, load: Load::All }));
        History { kind: Kind::Bucket, limit: 300, other_limit: 300, members, seed: 1, loss: 0, faults }
    };
    // A member that had used all units is cut off, and others want them.
    let mut histories: Vec<_> = (2..9).map(bucket).collect();
    // Calls of a time in which the store was away arrive after later ones, and begin a generation.
    histories.push(History {
        kind: Kind::Sliding,
        limit: 20,
        other_limit: 20,
        members: 8,
        seed: 650_336_120_925_035_814,
        loss: 0,
        faults: vec![
            (7_312, Fault::Away { for_ms: 1_719 }),
            (9_090, Fault::Away { for_ms: 8_996 }),
            (9_156, Fault::Restart { slot: 3, limit: 20 }),
            (17_779, Fault::Away { for_ms: 253 }),
            (18_433, Fault::Cut { slot: 1, for_ms: 10_553 }),
        ],
    });
    for history in histories {
        play(&history).unwrap_or_else(|error| panic!("{error}: {history:?}"));
    }
}

const KINDS: [Kind; 5] = [Kind::Sliding, Kind::Fixed, Kind::Bucket, Kind::Concurrency, Kind::Blocks];

/// A world of eight members after their first seconds, all of which have this load.
fn calm_world(kind: Kind, limit: u64, load: Load) -> World {
    let mut world = World::new(kind, limit, limit, 8, 7);
    for slot in 0..8 {
        world.plan(0, Fault::Load { slot, load });
    }
    world.run_until(30_000).unwrap();
    world.shares = Some(Shares::default());
    world
}

/// The measured figures of a time in which nothing fails.
#[derive(Debug)]
struct Figures {
    /// Calls counted by the provider, as a share of the limit.
    counted: f64,
    /// Mean units in use, as a share of the limit.
    used: f64,
    /// Calls to the store of each member and second.
    calls: f64,
    /// The largest distance of a hold from the fair share, over 2 s.
    distance: f64,
}

impl Figures {
    /// Calls to the store where windows have their real length. The blocks of a long one are asked for at its
    /// begin, and the shortest is six times as long as that of the model.
    fn calls_at_most(&self, kind: Kind) -> f64 {
        if kind == Kind::Blocks { 1.0 + (self.calls - 1.0) / 6.0 } else { self.calls }
    }
}

fn measure(world: &mut World, kind: Kind, limit: u64) -> Figures {
    let (calls, counted) = (world.calls, world.provider.calls);
    world.run_until(30_000 + MEASURED_MS).unwrap();
    let windows = (MEASURED_MS / kind.window_ms()) as f64;
    let shares = world.shares.take().unwrap();
    let figures = Figures {
        counted: (world.provider.calls - counted) as f64 / (limit as f64 * windows),
        used: shares.used() / limit as f64,
        calls: (world.calls - calls) as f64 / (8 * MEASURED_MS / 1_000) as f64,
        distance: shares.distance_max,
    };
    println!("{kind:?} {limit}: {figures:?}");
    figures
}

#[test]
fn model_waiting_members_use_nearly_all_in_fair_shares() {
    for kind in KINDS {
        for limit in [5, 20, 100, 1_000] {
            let figures = measure(&mut calm_world(kind, limit, Load::All), kind, limit);
            // A slot serves many calls in a second.
            let used = if kind == Kind::Concurrency { figures.used } else { figures.counted };
            let unused = if kind == Kind::Blocks { 8.0 / limit as f64 } else { 0.05 };
            assert!(used >= 1.0 - unused, "{kind:?} {limit}: {used}");
            let calls = figures.calls_at_most(kind);
            assert!(calls <= 1.5, "{kind:?} {limit}: {calls} calls");
            if kind != Kind::Blocks {
                assert!(
                    figures.distance <= 1.0,
                    "{kind:?} {limit}: {} from the fair share",
                    figures.distance
                );
            }
        }
    }
}

#[test]
fn model_units_follow_a_demand_that_moves_from_member_to_member() {
    for kind in [Kind::Sliding, Kind::Fixed, Kind::Bucket, Kind::Concurrency] {
        for limit in [20, 100, 1_000] {
            let mut world = calm_world(kind, limit, Load::Idle);
            for turn in 0..12 {
                let slot = usize::try_from(turn).unwrap() % 8;
                world.plan(turn * 5_000, Fault::Load { slot, load: Load::All });
                world.plan((turn + 1) * 5_000, Fault::Load { slot, load: Load::Idle });
            }
            let figures = measure(&mut world, kind, limit);
            let used = if kind == Kind::Concurrency { figures.used } else { figures.counted };
            assert!(used >= 0.9, "{kind:?} {limit}: {used}");
        }
    }
}

#[test]
fn model_calls_do_not_grow_with_refused_requests() {
    for kind in KINDS {
        // A slot serves many calls in a second.
        let percent = if kind == Kind::Concurrency { 3_000 } else { 100 };
        for limit in [5, 100] {
            let calls = [3, 21].map(|factor| {
                let mut world = calm_world(kind, limit, Load::Refusals);
                world.arrivals_percent = percent * factor;
                measure(&mut world, kind, limit).calls_at_most(kind)
            });
            assert!(calls.iter().all(|calls| *calls <= 11.0), "{kind:?} {limit}: {calls:?}");
            assert!(calls[1] <= calls[0] * 1.2, "{kind:?} {limit}: {calls:?}");
        }
    }
}

/// Plays members that all wait beside outside use of 30 % of the limit. Returns the units counted, and
/// the calls of members that were refused, as shares of the limit.
fn play_beside_outside_use(kind: Kind, tells: bool) -> (f64, f64) {
    let mut world = World::new(kind, 100, 100, 8, 7);
    world.use_outside(30, tells);
    world.run_until(30_000).unwrap();
    let (counted, refused) = (world.provider.calls, world.refused);
    world.run_until(30_000 + MEASURED_MS).unwrap();
    let units = (100 * MEASURED_MS / kind.window_ms()) as f64;
    ((world.provider.calls - counted) as f64 / units, (world.refused - refused) as f64 / units)
}

#[test]
fn model_members_leave_the_units_of_outside_use_alone() {
    for kind in [Kind::Sliding, Kind::Blocks] {
        let (counted, refused) = play_beside_outside_use(kind, true);
        let (_, refused_untold) = play_beside_outside_use(kind, false);
        println!(
            "{kind:?} beside outside use: {counted:.3} used, {refused:.3} refused, else {refused_untold:.3}"
        );
        assert!(counted >= 0.9, "{kind:?}: {counted} used");
        // The clients of the model call again at once, so one unit too many is refused many times.
        assert!(refused * 2.0 <= refused_untold, "{kind:?}: {refused} refused, else {refused_untold}");
    }
}

/// Plays a member with calls in transit at the edge of a window at 40 s, and others that use all of the next
/// one. Returns the number of those calls that the next window counts, and the units used in it.
fn play_an_edge(seed: u64, at_ms: u64, fault: Fault) -> Result<(u64, u64), String> {
    let mut world = World::new(Kind::Blocks, 200, 200, 4, seed);
    world.arrivals_percent = 800;
    for slot in 0..4 {
        world.plan(0, Fault::Load { slot, load: Load::Idle });
        let (begin_ms, load) = if slot == 1 { (38_000, Load::Arrivals) } else { (40_000, Load::All) };
        world.plan(begin_ms, Fault::Load { slot, load });
    }
    world.plan(at_ms, fault);
    world.run_until(40_000)?;
    let carried = world.carried;
    world.run_until(49_900)?;
    let carried = world.carried - carried;
    world.run_until(52_000)?;
    Ok((carried, world.provider.windows.last().copied().unwrap_or(0)))
}

#[test]
fn model_counts_calls_at_window_edges_despite_faults() {
    for (at_ms, fault) in [(39_990, Fault::Cut { slot: 1, for_ms: 12_000 }), (40_005, Fault::Empty)] {
        let edges: Vec<_> = (0..30).map(|seed| play_an_edge(seed, at_ms, fault).unwrap()).collect();
        // The block of a member that is cut off is not lent to others.
        let has_full_window = edges.iter().any(|(carried, used)| *carried > 0 && *used >= 198);
        assert!(
            has_full_window,
            "{fault:?}: nothing was in transit, or the next window was not used: {edges:?}"
        );
    }
}

#[test]
fn model_a_loss_of_store_and_member_is_bounded() {
    let excess = (0..40).map(|seed| {
        let mut world = World::new(Kind::Blocks, 1_000, 1_000, 4, seed);
        let at_ms = 20_050 + 10 * seed;
        world.plan(at_ms, Fault::Kill { slot: 1, down_ms: 20_000 });
        world.plan(at_ms, Fault::Empty);
        world.run_until(60_000).unwrap();
        world.excess
    });
    let excess: Vec<u64> = excess.collect();
    println!("above the limit after a loss: {excess:?}");
    assert!(excess.iter().any(|units| *units > 0), "the store loses nothing");
    assert!(excess.iter().all(|units| *units <= 20), "{excess:?}");
}

/// A call of a member that holds so many units and wants so many.
fn call(instance: u64, seq: u64, has: u64, want: u64) -> Call {
    let group = GroupCall {
        key: b"group".as_slice().into(),
        generation: 1,
        limit: 100,
        cool_down_ms: 1_000,
        has_fallback: true,
        has,
        want,
        used: has,
        report: None,
        window: None,
    };
    Call {
        instance,
        name: instance.to_string().into(),
        seq,
        incarnation: "0".into(),
        generation: 1,
        nonce: 1,
        clock: None,
        view: View::default(),
        divisor: 0,
        leaves: false,
        groups: vec![group],
    }
}

/// Units that the caller holds after a call.
fn hold_after(allocator: &mut Allocator, call: &Call, now_ms: u64) -> u64 {
    match allocator.apply(call, now_ms).unwrap() {
        AllocatorReply::Applied(reply) => reply.groups[0].hold,
        AllocatorReply::Stale => panic!("stale"),
    }
}

#[test]
fn model_units_stay_counted_when_the_clock_steps_back() {
    let mut allocator = Allocator::new();
    for second in 1..20 {
        assert_eq!(hold_after(&mut allocator, &call(1, second, 0, 0), second * 1_000), 0);
    }
    assert_eq!(hold_after(&mut allocator, &call(2, 1, 0, 100), 19_500), 100);
    // The clock was set back by 400 ms, which is too little for a new generation.
    assert_eq!(hold_after(&mut allocator, &call(2, 2, 100, 100), 19_200), 100);
    assert_eq!(hold_after(&mut allocator, &call(1, 20, 0, 100), 19_300), 0);
}

/// Units whose cool-down is this time, as those of a window that is long and slides.
const LONG_COOL_DOWN_MS: u64 = 30_000;

/// Seconds from the start of a new member, which calls each second, until it is lent units.
fn lent_at(
    allocator: &mut Allocator,
    incarnation: &str,
    first_s: u64,
    mut others: impl FnMut(&mut Allocator, u64),
) -> u64 {
    (first_s..first_s + 60)
        .find(|second| {
            let call = call(100 + first_s, *second, 0, 100);
            let mut new = Call { generation: 0, incarnation: incarnation.into(), ..call };
            new.groups[0].generation = 0;
            new.groups[0].cool_down_ms = LONG_COOL_DOWN_MS;
            others(allocator, *second);
            hold_after(allocator, &new, second * 1_000) == 100
        })
        .map_or(u64::MAX, |second| second - first_s)
}

#[test]
fn model_only_a_new_store_lends_before_the_cool_down() {
    let long_s = LONG_COOL_DOWN_MS / 1_000;
    assert_eq!(lent_at(&mut Allocator::new(), "0", 1, |_, _| {}), 7, "the recovery window, rounded up");
    // A member that knows an earlier generation calls once, late in the recovery window.
    let late = |allocator: &mut Allocator, second| {
        if second == 6 {
            hold_after(allocator, &Call { generation: 7, ..call(1, second, 0, 0) }, second * 1_000);
        }
    };
    let claimed_s = lent_at(&mut Allocator::new(), "0", 1, late);
    assert!((long_s..50).contains(&claimed_s), "{claimed_s}");
    // The store itself knows one, from which a member is left that is gone.
    let mut allocator = Allocator::new();
    assert_eq!(lent_at(&mut allocator, "0", 1, |_, _| {}), 7);
    let restarted_s = lent_at(&mut allocator, "1", 20, |_, _| {});
    assert!((long_s..50).contains(&restarted_s), "{restarted_s}");
}
