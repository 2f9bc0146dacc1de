//! `egret lab`: runs, reports, compares and lists experiments.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use egret_experiment::report::{self, Summary};
use egret_experiment::{Changes, Interrupt, Interrupter, Results, ResultsError, Run, RunError};
use egret_measure::streams;
use egret_service::events::{Event, Events, runtime};
use egret_settings::failure::Failure;
use egret_settings::output::print;

/// The commands of `egret lab`.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Run an experiment: every scenario, round by round, and write a report into a results folder.
    ///
    /// Each turn starts provider and proxy again, waits until they respond, warms up and measures. If the run
    /// is stopped by Ctrl-C or a failure, the folder keeps the finished turns and is named `.partial`;
    /// `--resume` continues it. Do not use the machine for anything else during the run.
    Run(RunArguments),
    /// Recreate the report of a results folder: `report.html`, a self-contained page, and its charts as SVG
    /// files in `charts/`.
    ///
    /// Prints the verdict. A stopped run has no report; this command creates one, which is marked as
    /// incomplete.
    Report {
        /// The results folder.
        directory: PathBuf,
    },
    /// Compare two runs of an experiment, and print the differences.
    ///
    /// A figure counts as changed if its confidence interval excludes zero change and it changed by more than
    /// the tolerance. Exits with code 1 if any figure of the second run is worse.
    Compare {
        /// The results folder of the first run.
        first: PathBuf,
        /// The results folder of the second run.
        second: PathBuf,
        /// Tolerated change of a figure, in percent.
        #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
        tolerance: u8,
        /// Exit with code 1 on any change, including improvements.
        #[arg(long)]
        any: bool,
    },
    /// List the experiments and results.
    List {
        /// The directory of the experiments.
        #[arg(long, value_name = "DIR", default_value = "experiments")]
        experiments: PathBuf,
        /// The directory of the results.
        #[arg(long, value_name = "DIR", default_value = "results")]
        results: PathBuf,
    },
    /// Serve a lab on another machine. `egret lab run` starts this command through ssh.
    ///
    /// Orders arrive on standard input. The command and all processes that it has started end with the
    /// connection, and after a minute without an order.
    #[command(hide = true)]
    Agent {
        /// The directory for the files of a turn.
        directory: PathBuf,
    },
}

/// The arguments of `egret lab run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The experiment file.
    #[arg(required_unless_present = "resume")]
    file: Option<PathBuf>,
    /// Run the quick profile: at most two minutes for most experiments, with wider intervals.
    #[arg(long, conflicts_with = "resume")]
    quick: bool,
    /// The results folder, which must not exist. Default: a folder in `./results`, named after experiment,
    /// time and version.
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Number of rounds, instead of the experiment's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "resume")]
    rounds: Option<u32>,
    /// Run only this case; may be repeated.
    #[arg(long = "case", value_name = "NAME", conflicts_with = "resume")]
    cases: Vec<String>,
    /// Duration of each turn in seconds, for cases whose turns have a duration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=600), conflicts_with = "resume")]
    seconds: Option<u32>,
    /// A file that says on which machines client, proxy and provider run, as the key `on` of an experiment.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    on: Option<PathBuf>,
    /// Exit with code 1 if a figure misses a target that the experiment sets.
    #[arg(long)]
    hold: bool,
    /// Print the names of the programs that the run needs, one a line, instead of running it.
    #[arg(long, conflicts_with = "resume")]
    needs: bool,
    /// Continue a stopped run, with its original experiment and configs.
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    resume: Option<PathBuf>,
}

impl Lab {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Run(arguments) if arguments.needs => print_needs(&arguments),
            Self::Run(arguments) => run_experiment(&arguments),
            Self::Report { directory } => report(&directory),
            Self::Compare { first, second, tolerance, any } => compare(&first, &second, tolerance, any),
            Self::Agent { directory } => agent(&directory),
            Self::List { experiments, results } => print(&egret_experiment::list(&experiments, &results)),
        }
    }
}

impl RunArguments {
    fn file(&self) -> Result<&Path, Failure> {
        let message = "no experiment given: name its file, or a stopped run with --resume";
        self.file.as_deref().ok_or_else(|| Failure::Misused(message.into()))
    }

    fn changes(&self) -> Changes {
        Changes {
            quick: self.quick,
            rounds: self.rounds,
            cases: self.cases.clone(),
            seconds: self.seconds,
            machines: self.on.clone(),
        }
    }
}

fn print_needs(arguments: &RunArguments) -> Result<(), Failure> {
    let programs = egret_experiment::needs(arguments.file()?, &arguments.changes()).map_err(failure)?;
    print(&programs.into_iter().map(|program| program + "\n").collect::<String>())
}

fn run_experiment(arguments: &RunArguments) -> Result<(), Failure> {
    let egret = own_program()?;
    let run = if let Some(directory) = &arguments.resume {
        Run::resume(directory, &egret)
    } else {
        let (file, changes) = (arguments.file()?, arguments.changes());
        Run::new(file, &changes, arguments.out.as_deref(), &egret, env!("CARGO_PKG_VERSION"))
    };
    let (interrupter, interrupt) = Interrupt::new();
    watch_signals(interrupter)?;
    let live = std::io::stderr().is_terminal();
    let results = run.and_then(|run| run.execute(&interrupt, &mut streams::Stderr, live)).map_err(failure)?;
    let summary = report::report(&results).map_err(failure)?;
    let results = results.finish().map_err(failure)?;
    let directory = results.directory.display();
    print(&format!("\n{}\nReport: {directory}/report.html\n", summary_text(&summary)))?;
    let broken = summary.held.iter().filter(|held| !held.holds());
    let broken: Vec<String> = broken.map(|held| format!("\n  {held}")).collect();
    if arguments.hold && !broken.is_empty() {
        let (count, all) = (broken.len(), summary.held.len());
        return Err(Failure::Failed(format!("Not held: {count} of {all} figures:{}", broken.concat())));
    }
    Ok(())
}

fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find the executable of egret itself: {error}")))
}

fn agent(directory: &Path) -> Result<(), Failure> {
    let (interrupter, interrupt) = Interrupt::new();
    watch_signals(interrupter)?;
    let served = egret_experiment::serve(
        directory,
        own_program()?,
        std::io::stdin(),
        &mut std::io::stdout(),
        &interrupt,
    );
    served.map_err(|error| Failure::Failed(format!("{}: {error}", directory.display())))
}

fn report(directory: &Path) -> Result<(), Failure> {
    let results = Results::open(directory).map_err(failure)?;
    let summary = report::report(&results).map_err(failure)?;
    print(&format!("{}\nReport: {}/report.html\n", summary_text(&summary), results.directory.display()))
}

fn compare(first: &Path, second: &Path, tolerance: u8, any: bool) -> Result<(), Failure> {
    let summary = |directory| Results::open(directory).map(|results| Summary::of(&results)).map_err(failure);
    let comparison = report::compare(&summary(first)?, &summary(second)?, f64::from(tolerance) / 100.0);
    print(&comparison.to_string())?;
    if comparison.is_worse() || (any && comparison.differs()) {
        return Err(Failure::Failed("The runs differ.".into()));
    }
    Ok(())
}

/// Returns the conclusion, the verdict, the added times, the tables, the targets, and the doubts about the
/// results.
fn summary_text(summary: &Summary) -> String {
    let headline = std::iter::once(format!("{}\n\n", summary.headline));
    let verdict = summary.verdict.iter().map(|sentence| format!("{sentence}\n"));
    let added = summary.added().map(|table| format!("\n{table}"));
    let tables = summary.tables.iter().map(|table| format!("\n{table}"));
    let heading = (!summary.held.is_empty()).then(|| "\nFigures to hold, with their limits:\n".to_owned());
    let held = heading.into_iter().chain(summary.held.iter().map(|held| format!("{held}\n")));
    let doubts = summary.doubts.iter().map(|doubt| format!("Doubtful: {doubt}\n"));
    headline.chain(verdict).chain(added).chain(tables).chain(held).chain(doubts).collect::<Vec<_>>().concat()
}

/// Stops the run on SIGINT and SIGTERM, on a thread that ends with the process.
fn watch_signals(interrupter: Interrupter) -> Result<(), Failure> {
    let runtime = runtime()?;
    let mut events = runtime.block_on(async { Events::start(None) })?;
    let watch = move || {
        runtime.block_on(async {
            loop {
                if let Event::Stop(_) = events.next().await {
                    interrupter.interrupt();
                }
            }
        })
    };
    let thread = std::thread::Builder::new().name("egret-signals".into()).spawn(watch);
    thread.map(drop).map_err(|error| Failure::Failed(format!("cannot start the signal thread: {error}")))
}

/// Returns the failure of a command of the lab.
fn failure(error: impl Into<RunError>) -> Failure {
    let error = error.into();
    let message = error.to_string();
    match error {
        RunError::File(_)
        | RunError::Misused(_)
        | RunError::Results(ResultsError::Exists(_) | ResultsError::NotThere(_)) => Failure::Misused(message),
        _ => Failure::Failed(message),
    }
}
