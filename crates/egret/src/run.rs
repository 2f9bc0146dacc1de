//! `egret run`: the gateway and its control port, and with `--demo` the built-in provider.

use std::path::PathBuf;

use clap::Args;
use egret_service::demo::{DemoProvider, StartProvider};
use egret_service::run::overrides::Overrides;
use egret_service::run::{Beginning, Origin, Run};
use egret_settings::config_path;
use egret_settings::failure::Failure;

/// The arguments of `egret run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The config file. Default: `egret.yaml` in the working directory. Without that, every key has its
    /// default: traffic is forwarded and counted.
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The config file, as an option.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also run the built-in provider, configured as `demo`, and print commands to try: traffic without
    /// the Internet. Picks free ports if the defaults are taken.
    #[arg(long)]
    demo: bool,
    /// Take over from the Egret that runs with the same `data_dir`: its listening sockets, the counts of
    /// its quotas, its circuit breakers and the cool-downs of its accounts. The old process finishes its
    /// requests and exits. If no gateway runs, this starts normally. If the takeover fails, the old one keeps
    /// running. Linux only.
    #[arg(long, conflicts_with = "demo")]
    take_over: bool,
    #[command(flatten)]
    overrides: Overrides,
}

impl RunArguments {
    /// Runs the gateway until it is stopped.
    pub fn run(self) -> Result<(), Failure> {
        let file = config_path::named_or_found(self.file.or(self.config))?;
        let run = Run {
            origin: file.map_or(Origin::Default, Origin::File),
            demo: self.demo.then_some(start_provider as StartProvider),
            beginning: if self.take_over { Beginning::TakeOver } else { Beginning::New },
            overrides: self.overrides,
            attached: None,
        };
        run.run()
    }
}

/// Starts the built-in provider; if its port is taken, on a free one.
#[cfg(feature = "lab")]
fn start_provider() -> Result<DemoProvider, Failure> {
    use egret_provider::{Options, Provider};

    use crate::provider::ADDRESS;

    let provider = Provider::start(ADDRESS, Options::default())
        .or_else(|_| Provider::start(std::net::SocketAddr::new(ADDRESS.ip(), 0), Options::default()))
        .map_err(|error| {
            Failure::Failed(format!("the built-in provider cannot listen on loopback: {error}"))
        })?;
    Ok(DemoProvider { address: provider.address(), running: Box::new(provider) })
}

/// Fails: this build has no provider.
#[cfg(not(feature = "lab"))]
fn start_provider() -> Result<DemoProvider, Failure> {
    Err(crate::absent::absent("run --demo"))
}
