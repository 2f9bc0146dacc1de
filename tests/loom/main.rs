//! Runs small models of state that threads of Egret share, in all orders that the memory model allows, as
//! loom finds them: `make loom`.
//!
//! The files under test are those of Egret's crates. They take their primitives from `crate::sync`, which is
//! another module here.

mod queue;
mod sync;

/// The event loop of a worker.
mod event_loop {
    pub mod tasks {
        /// Identity of a task.
        pub type TaskId = u32;
    }

    #[path = "../../../crates/wire/net/src/event_loop/remote.rs"]
    mod remote;

    pub mod models;
}

/// The ring that carries records to the thread of diagnoses.
mod ring {
    #[path = "../../../crates/gateway/observe/src/ring/state.rs"]
    mod state;

    pub mod models;
}

/// The memory budget of gathered bodies.
#[expect(dead_code, reason = "the models need a part of the file")]
mod budget {
    #[path = "../../../crates/wire/net/src/budget.rs"]
    mod budget;

    pub mod models;
}

/// The lease of units that gateways share.
#[expect(dead_code, reason = "the models need a part of these files")]
mod shared {
    #[path = "../../../crates/policy/store/src/shared/lease.rs"]
    mod lease;
    #[path = "../../../crates/policy/store/src/shared/terms.rs"]
    mod terms;

    pub mod message;
    pub mod models;
}

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// A model: its claim, the number of its cases, and what loom runs for each.
type Model = (&'static str, usize, fn(usize));

const MODELS: [Model; 8] = [
    ("a worker runs each task that other threads wake", 1, |_| event_loop::models::no_wake_up_is_lost()),
    ("a wake-up between two waits ends the second", 1, |_| {
        event_loop::models::a_later_wake_up_is_a_new_one()
    }),
    ("a record that has a place is pushed", 1, |_| ring::models::a_record_with_a_place_is_pushed()),
    ("records before a stop are processed", 1, |_| ring::models::records_before_a_stop_are_processed()),
    ("the thread of diagnoses is woken for an urgent ring", 1, |_| {
        ring::models::an_urgent_ring_is_looked_at()
    }),
    ("a body that fits the budget gets its memory", 1, |_| {
        budget::models::a_body_that_fits_gets_its_memory()
    }),
    ("a budget is not exceeded, and is returned whole", 1, |_| budget::models::a_budget_is_not_exceeded()),
    (
        "a renewed lease lends no more than it had or has",
        shared::models::CASES,
        shared::models::a_renewal_lends_no_more,
    ),
];

/// Preemptions in one order: nearly all defects need no more than two.
const PREEMPTIONS: usize = 3;

/// Plays the model with that claim, or each of them in a process of its own: one that fails ends its process.
fn main() -> ExitCode {
    if let Some(claim) = std::env::args().nth(1) {
        MODELS
            .into_iter()
            .filter(|(name, ..)| *name == claim)
            .for_each(|(name, cases, model)| play(name, cases, model));
        return ExitCode::SUCCESS;
    }
    let own = std::env::current_exe().unwrap();
    let failed = MODELS.iter().filter(|(claim, ..)| {
        let output = Command::new(&own).arg(claim).env("RUST_BACKTRACE", "0").output().unwrap();
        if output.status.success() {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            return false;
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let cause: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(2).collect();
        println!("FAILED  {claim}: {}", cause.join(" "));
        true
    });
    ExitCode::from(u8::from(failed.count() > 0))
}

/// Runs a model in all orders, and prints their number.
fn play(claim: &str, cases: usize, model: fn(usize)) {
    let (begun, orders) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    for case in 0..cases {
        let counted = Arc::clone(&orders);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(PREEMPTIONS);
        builder.check(move || {
            counted.fetch_add(1, Relaxed);
            model(case);
        });
    }
    let (count, seconds) = (orders.load(Relaxed), begun.elapsed().as_secs_f64());
    println!("ok {seconds:6.1} s  {count:>8} orders  {claim}");
}
