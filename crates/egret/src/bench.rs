//! `egret bench`: runs the load client until it ends or is interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use egret_bench::Console;
pub use egret_bench::Options as BenchArgs;
use egret_measure::streams;

use egret_service::events::{self, Event, Events};
use egret_settings::failure::Failure;

/// Runs the measurement.
pub fn run(options: BenchArgs) -> Result<(), Failure> {
    let interrupted = interruption()?;
    let mut console = Console { out: &mut streams::Stdout, interrupted: &interrupted };
    match egret_bench::run(options, &mut console) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Failed("The run failed.".to_owned())),
        Err(error) if error.is_misuse() => {
            Err(Failure::Misused(format!("egret bench: {error}\n`egret bench --help` lists the options.")))
        }
        Err(error) => Err(Failure::Failed(format!("egret bench: {error}"))),
    }
}

/// Returns a flag that becomes true on SIGINT or SIGTERM, when the run has to end.
fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let runtime = events::runtime()?;
    let mut events = runtime.block_on(async { Events::start(None) })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            while !matches!(events.next().await, Event::Stop(_)) {}
            flag.store(true, Relaxed);
        });
    });
    Ok(interrupted)
}
