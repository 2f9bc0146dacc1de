//! The `egret` command.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong usage or config. `egret exec` has those of env(1).
#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the stream is closed: see `egret_measure::streams`"
)]

#[cfg(not(feature = "lab"))]
mod absent;
mod archiver;
mod asked_gateway;
#[cfg_attr(not(feature = "lab"), path = "without_lab/bench.rs")]
mod bench;
mod ca;
mod check;
mod cli;
mod discover;
mod doctor;
mod explain;
mod findings;
mod har;
mod health;
mod help_examples;
mod help_groups;
mod import;
mod init;
#[cfg_attr(not(feature = "lab"), path = "without_lab/lab.rs")]
mod lab;
mod manual;
mod other_names;
mod prices;
#[cfg_attr(not(feature = "lab"), path = "without_lab/provider.rs")]
mod provider;
mod reference;
mod reload;
mod run;
mod status;
mod tail;
mod version;

use std::process::ExitCode;

use egret_measure::streams::say;
use egret_settings::failure::Failure;
use egret_settings::output;
use egret_settings::output::{print, print_exact, print_json};

use cli::Command;

/// A gateway allocates and frees small objects on many threads. mimalloc avoids the contended arenas of the
/// system allocator, returns memory after a burst, and is also fast under musl, whose own allocator takes a
/// lock for every call. It is built without huge pages (`no_thp`), as in `memory.rs` of `egret-service`.
/// Sanitizers know the system's allocator alone.
#[cfg(not(sanitized))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const _: () = assert!(!egret_clock::IS_SIMULATED, "only the simulation may have the feature `simulated`");

fn main() -> ExitCode {
    let arguments = archiver::with_two_dashes(std::env::args_os());
    if let Some(message) = archiver::ambiguous(&arguments) {
        say(message);
        return ExitCode::from(Failure::misused("").exit_code());
    }
    let is_exec = arguments.get(1).is_some_and(|name| name == egret_exec::NAME);
    let cli = match help_groups::parse(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version also end here, with code 0. If printing fails, the exit code must suffice.
            let error = other_names::with_suggestion(error);
            let _ = error.print();
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            return ExitCode::from(if is_exec && code != 0 { egret_exec::FAILED } else { code });
        }
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say_failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => arguments.run(),
        Command::Init { file, force, preset } => init::run(&file, init::Existing::of(force), preset),
        Command::Exec(arguments) => arguments.run(),
        Command::Serve(arguments) => arguments.run(),
        #[cfg(feature = "lab")]
        Command::LabPart { lab, part } => Err(Failure::failed(egret_experiment::part::run(lab, &part))),
        Command::Archiver(arguments) => arguments.run(),
        Command::Provider(arguments) => provider::run(*arguments),
        Command::Bench(args) => bench::run(*args),
        Command::Check(arguments) => arguments.run(),
        Command::Health(gateway) => health::run(&gateway),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Discover(arguments) => discover::run(&arguments),
        Command::Status(asked) => status::run(&asked),
        Command::Reload(asked) => reload::run(&asked),
        Command::Tail(arguments) => tail::run(&arguments),
        Command::Explain(arguments) => arguments.run(),
        Command::Schema => print_json(&reference::schema_text()),
        Command::Import(import) => import.run(),
        Command::Prices(prices) => prices.run(),
        Command::Lab(lab) => lab.run(),
        Command::Har(har) => har.run(),
        Command::Ca(ca) => ca.run(),
        Command::Reference { page } => print(&reference::page(page)),
        Command::Completions { shell } => print_exact(&manual::completions(shell)),
        Command::Man { directory } => manual::write(&directory),
        Command::Version => print(&version::line()),
    }
}
