//! A load client with ab's options and reports, plus features that ab lacks.
//!
//! [`Options`] describe a run and are compiled to a plan. The engine runs the plan on its own threads, and a
//! report presents the results. The HTTP client shares no code with the gateway except the parser,
//! `egret-http1`; the rest is an event loop.
//!
//! This crate knows no gateway, no provider and no experiment. It measures whatever listens at a URL.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the reader has closed the stream: see `egret_measure::streams`"
)]

mod alarm;
mod check;
mod comparison;
mod compile;
mod connection;
mod console;
mod cpu_usage;
mod destinations;
mod engine;
mod error;
#[cfg(test)]
mod fixture;
mod guard;
mod live_view;
mod options;
mod output;
mod pace;
mod plan;
mod progress;
mod progress_text;
mod report;
mod request;
mod saturation;
mod session;
mod sessions;
mod single;
mod snapshot;
mod stamps;
mod tally;
mod threshold;
mod tls;
mod tls_config;
mod transport;
mod url;
mod worker;

use std::io::Write;

pub use console::Console;
pub use error::Error;
pub use options::{Options, Target, TargetError};
pub use threshold::{Threshold, ThresholdError};

/// The output of `-V`.
const VERSION: &str = concat!(
    "This is egret bench, Version ",
    env!("CARGO_PKG_VERSION"),
    ", with the options and reports of ApacheBench 2.3\n"
);

/// Measures as requested, and reports. Returns `true` if the result is acceptable.
pub fn run<W: Write>(options: Options, console: &mut Console<'_, W>) -> Result<bool, Error> {
    if options.json_schema {
        return console.print(&report::summary::schema()).map(|()| true);
    }
    if options.ab_version {
        return console.print(VERSION).map(|()| true);
    }
    let options = options.settled();
    match &options.vs {
        Some(url) => comparison::compare(&options, url, console),
        None if options.find_knee => saturation::find(&options, console),
        None => single::measure(&options, console),
    }
}
