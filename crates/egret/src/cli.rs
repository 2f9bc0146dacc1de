//! The command line: every command and option, with the help texts.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use egret_presets::PresetName;

use crate::archiver::ArchiverArgs;
use crate::bench::BenchArgs;

/// Egret is a gateway between an application and the third-party APIs that it calls.
///
/// It runs beside the application, which can reach it in six ways: as a forward proxy, through a base URL,
/// with a header field, with query parameters, with the Host field, or on a listener for one provider.
#[derive(Debug, Parser)]
#[command(name = "egret", version, propagate_version = false)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `egret`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway and its control port.
    ///
    /// SIGTERM or SIGINT drains: Egret accepts no new connections, finishes the exchanges in flight and
    /// exits. A second signal stops it immediately. A changed config file is applied as soon as it is saved,
    /// and on SIGHUP: either as a whole, or not at all, and then the log shows the errors. SIGUSR2 starts a
    /// new process, which takes over: a restart without an error for any client.
    #[command(after_long_help = crate::help_examples::RUN)]
    Run(Box<crate::run::RunArguments>),
    /// Write a commented config to start from.
    ///
    /// It passes `egret check`, and works with `egret provider` until you name your own provider.
    #[command(after_long_help = crate::help_examples::INIT)]
    Init {
        /// The file to write.
        #[arg(default_value = egret_settings::config_path::FILE_NAME)]
        file: PathBuf,
        /// Replace a file that exists.
        #[arg(long)]
        force: bool,
        /// Write a config for this well-known provider instead of the built-in one.
        #[arg(long, value_name = "NAME")]
        preset: Option<PresetName>,
    },
    /// Run a program whose calls go through Egret.
    ///
    /// Sets the variables by which programs find a proxy, and replaces itself by the program. The program
    /// thus has its own process id, terminal, signals and exit code. If the gateway of the config runs, the
    /// program uses it. Otherwise one is started on free ports, and ends with the program. The last ten logs
    /// are in `data_dir/exec`, by default `./egret-data/exec`, by the process id of the program. Exits with
    /// code 125 if Egret fails, 126 if the program cannot be run, and 127 if it is not found.
    #[command(after_long_help = crate::help_examples::EXEC)]
    Exec(Box<egret_exec::ExecArguments>),
    /// Run the gateway of one command, for `egret exec`.
    #[command(name = egret_exec::serve::NAME, hide = true)]
    Serve(Box<egret_exec::serve::ServeCommand>),
    /// Become a part of an experiment, for `egret lab`.
    #[cfg(feature = "lab")]
    #[command(name = egret_experiment::part::NAME, hide = true)]
    LabPart {
        /// Process id of the lab.
        lab: u32,
        /// The program and its arguments.
        #[arg(required = true, last = true)]
        part: Vec<std::ffi::OsString>,
    },
    /// Validate a config file.
    ///
    /// Prints all errors at once, each with file, line, column, the expected value and a suggestion, and
    /// warns of what is valid, but probably not meant. Secrets are read, but neither they nor the content of
    /// their files are shown. Exits with code 2 for errors, and with 0 for warnings.
    #[command(after_long_help = crate::help_examples::CHECK)]
    Check(crate::check::CheckArguments),
    /// Exit with code 0 if the gateway is ready: for the health check of a container.
    Health(crate::asked_gateway::GatewayArguments),
    /// Show a running gateway on one screen: its providers, and what is wrong now.
    ///
    /// Exits with code 1 if something is wrong.
    Status(crate::asked_gateway::AskedGateway),
    /// Apply the config file of a running gateway again, as SIGHUP does, and print what has changed.
    ///
    /// A changed file is applied as soon as it is saved. This also reads certificates and secrets again, and
    /// reopens the access log. Exits with code 2 if the config is refused; the one before stays in effect.
    Reload(crate::asked_gateway::AskedGateway),
    /// List the endpoints that a running gateway has seen, or propose flows for them.
    #[command(after_long_help = crate::help_examples::DISCOVER)]
    Discover(crate::discover::DiscoverArguments),
    /// Print one report for a support ticket: program, machine, config and state of a gateway.
    ///
    /// The report contains no secrets. Exits with code 1 if something is wrong; the report begins with a list
    /// of it.
    #[command(after_long_help = crate::help_examples::DOCTOR)]
    Doctor(crate::doctor::DoctorArguments),
    /// Show the calls through a running gateway, one line each, as they end.
    ///
    /// Secrets are hidden as `control.traffic.redact` says. Exchanges are recorded while somebody watches; if
    /// there are too many, only some of them are shown, and a note tells which share. Times are in UTC. Give
    /// a filter several times to see the calls that match one of its values.
    #[command(after_long_help = crate::help_examples::TAIL)]
    Tail(Box<crate::tail::TailArguments>),
    /// Show which flows match a request, why others do not, and what their remedies would do.
    ///
    /// The gateway's own plan of the config decides: its routes, its egress policy and its flows. Nothing is
    /// sent, no secret is read and no name is looked up, so an address of a host may still be denied. Exits
    /// with code 1 if the gateway would respond with an error of its own, which is named, and with code 2 if
    /// the config or the command is wrong.
    #[command(after_long_help = crate::help_examples::EXPLAIN)]
    Explain(crate::explain::ExplainArguments),
    /// Print the JSON Schema of the config, for editors.
    ///
    /// Save it and refer to it in the first line of a config:
    /// `# yaml-language-server: $schema=egret.schema.json`
    Schema,
    /// Run the built-in provider alone: an API to call that responds like httpbin, with configurable delays
    /// and faults.
    ///
    /// Its page at `/` lists the endpoints.
    #[command(after_long_help = crate::help_examples::PROVIDER)]
    Provider(Box<crate::provider::ProviderArguments>),
    /// Measure how much latency Egret, or any other proxy, adds.
    #[command(subcommand)]
    Lab(crate::lab::Lab),
    /// Obfuscate, verify, summarize, merge and split HAR files of any recorder.
    ///
    /// Files that are compressed with gzip (`.har.gz`) are read as well. Results are not compressed.
    #[command(subcommand)]
    Har(crate::har::HarCommand),
    /// Make, show and distribute the certificate authority for intercepted hosts.
    #[command(subcommand)]
    Ca(crate::ca::CaCommand),
    /// Load-test a target, with the options and report of ab, and more.
    ///
    /// `egret reference bench` has all options. Exits with code 1 also if a `--fail-if` condition is true,
    /// the run was aborted, or every request failed.
    #[command(disable_version_flag = true, after_long_help = crate::help_examples::BENCH)]
    Bench(Box<BenchArgs>),
    /// Replace HARchiver: same command line, header fields and responses.
    ///
    /// Long options may have a single dash, like HARchiver's, and may be abbreviated:
    /// `egret archiver 15000 TOKEN -https 15001 -rev api.example`. `docs/how-to/replace-harchiver.md` lists
    /// the differences.
    #[command(name = crate::archiver::NAME, infer_long_args = true)]
    Archiver(Box<ArchiverArgs>),
    /// Translate another product's config into Egret's.
    #[command(subcommand)]
    Import(crate::import::Import),
    /// Import and show prices of language models.
    #[command(subcommand)]
    Prices(crate::prices::Prices),
    /// Print a page of the reference, as Markdown.
    Reference {
        /// The page to print.
        #[arg(value_enum, default_value_t = Page::Config)]
        page: Page,
    },
    /// Print a script that completes the command line in a shell.
    ///
    /// For the current shell: `source <(egret completions bash)`.
    #[command(after_long_help = crate::help_examples::COMPLETIONS)]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages: one for each command, and `egret.yaml(5)` for the config.
    Man {
        /// The directory, which is created if it does not exist.
        directory: PathBuf,
    },
    /// Print the version, with the commit and the machine that it was built for.
    Version,
}

/// A page of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// Every key of the config.
    Config,
    /// The config keys that most configs need, in a sentence each.
    ConfigEveryday,
    /// Every command and option.
    Cli,
    /// Every endpoint of the built-in provider.
    #[cfg(feature = "lab")]
    Provider,
    /// Every preset of a provider, with the sources of its facts.
    Presets,
    /// TypeScript declarations of what a script of the remedy `script` sees.
    Script,
    /// Accounts and credentials.
    Accounts,
    /// The load client.
    #[cfg(feature = "lab")]
    Bench,
    /// The cache.
    Cache,
    /// The requirements on a cache, with their tests.
    CacheRequirements,
    /// The API of the control port.
    ControlApi,
    /// Diagnoses.
    Diagnoses,
    /// Errors that Egret responds with.
    Errors,
    /// Experiments of the lab.
    #[cfg(feature = "lab")]
    Experiments,
    /// Exporters.
    Exporters,
    /// Findings: what is wrong now.
    Findings,
    /// HAR archives and their obfuscation.
    Har,
    /// Limits and timeouts.
    Limits,
    /// Match rules and expressions.
    Matching,
    /// Metrics.
    Metrics,
    /// Platforms on which Egret runs.
    Platforms,
    /// Prices of models.
    Prices,
    /// Remedies.
    Remedies,
    /// Ways to name the provider of a call.
    Routing,
    /// Templates in header fields and bodies.
    Templates,
    /// Usage of language models.
    Usage,
    /// The promises of a version number.
    Versions,
}
