//! The protocol in a deterministic world, without any I/O. Histories are drawn at random: loads, limits, and
//! faults of gateways, network and store. In none of them does a unit exist twice, or does the provider count
//! more than its limit; and after the faults everybody is served again.
//!
//! `EGRET_MODEL_HISTORIES` sets a number of new histories; without it, the same few are played each time.
//! `make model` plays many.

#![expect(clippy::cast_precision_loss, reason = "the numbers are small")]

mod loans;
mod mirror;
mod process;
mod provider;
mod world;

use process::Load;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use provider::{Kind, LONG_WINDOW_MS};
use world::{Fault, World};

/// Number of histories if the environment has none.
const HISTORIES: u32 = 200;
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

/// The same histories each time, or as many new ones as the environment says.
fn config() -> ProptestConfig {
    let count = std::env::var("EGRET_MODEL_HISTORIES").ok().and_then(|count| count.parse().ok());
    let rng_seed = if count.is_some() { RngSeed::Random } else { RngSeed::Fixed(19) };
    let cases = count.unwrap_or(HISTORIES);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
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
    world.run_until(measured_from_ms + MEASURED_MS)?;
    let starved = (0..members).find(|&slot| world.served[slot] == served[slot]);
    if let Some(slot) = starved.filter(|_| kind != Kind::Blocks) {
        return Err(format!("member {slot} was not served"));
    }
    let windows = (MEASURED_MS / kind.window_ms()) as f64;
    let used = (world.provider.calls - counted) as f64 / (limit as f64 * windows);
    let rate = (world.calls - calls) as f64 / (members as f64 * (MEASURED_MS / 1_000) as f64);
    Ok((used, rate))
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn model_histories_never_exceed_the_limit_and_starve_nobody(history in history()) {
        let result = play(&history);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

#[test]
fn model_prints_the_share_used_where_all_wait() {
    for kind in [Kind::Sliding, Kind::Fixed, Kind::Bucket, Kind::Concurrency, Kind::Blocks] {
        for limit in [5, 20, 100, 1_000] {
            // A call in transit at the edge of a long window may be counted in the next one, which learns
            // about it later.
            let other_limit = if kind == Kind::Blocks { limit + 50 } else { limit };
            let history =
                History { kind, limit, other_limit, members: 8, seed: 7, loss: 0, faults: Vec::new() };
            let (used, calls) = play(&history).unwrap();
            // A slot that is free again serves many calls in a second, so its share is not known from them.
            if kind == Kind::Concurrency {
                println!("{kind:?} {limit}: {used:.1} calls per slot and second, {calls:.2} to the store");
                continue;
            }
            println!("{kind:?} {limit}: {:.1} % used, {calls:.2} calls per member and second", used * 100.0);
            let unused = if kind == Kind::Blocks { 8.0 / limit as f64 } else { 0.06 };
            assert!(used >= 1.0 - unused, "{kind:?} {limit}: {used}");
        }
    }
}
