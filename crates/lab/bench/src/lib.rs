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
mod output_options;
mod pace;
mod plan;
mod progress;
mod progress_text;
mod report;
mod request;
mod saturation;
mod sessions;
mod single;
mod snapshot;
mod tally;
mod threshold;
mod tls;
mod transport;
mod url;
mod worker;

use std::io::Write;

pub use console::Console;
pub use error::Error;
pub use options::{BodySource, Options, Target, TargetError};
pub use output_options::{Mode, OutputOptions};
pub use report::summary::schema;
pub use report::{Attributes, Style};
pub use threshold::{Threshold, ThresholdError};
pub use tls::TlsOptions;

/// Measures as requested, and reports. Returns `true` if the result is acceptable.
pub fn run<W: Write>(
    options: &Options,
    output: &OutputOptions,
    console: &mut Console<'_, W>,
) -> Result<bool, Error> {
    match &output.mode {
        Mode::Once => single::measure(options, output, console),
        Mode::Saturation => saturation::find(options, output, console),
        Mode::Comparison(url) => comparison::compare(options, url, output, console),
    }
}
