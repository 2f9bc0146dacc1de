//! `egret run`: starts the parts, reloads them, and stops them in order.

pub mod attached;
mod banner;
mod config_calls;
pub mod handover;
mod missed;
mod names;
pub mod overrides;
pub mod passed_sockets;
mod reload;
mod stop;
mod switch;

use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_config::{Loaded, LocatedProblem, Report, SourceSet};
use egret_control::{CALLS_MAX, ConfigAccess, ConfigCall, ConfigRequest, Control};
use egret_gateway::Gateway;
use egret_measure::streams::say;
use egret_message::ListenAddress;
use egret_net::config::TlsVerify;
use egret_plan::config::Providers;
use egret_settings::config::Config;
use egret_settings::config_file::{self, ConfigFileError, ConfigSources};
use egret_settings::config_versions::{ConfigVersions, VersionOrigin};
use egret_settings::control_token::ControlToken;
use egret_settings::failure::Failure;
use egret_settings::output::print;
use egret_settings::{advice, config_path, control_key, data_dir};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::control_source::ControlSource;
use crate::demo::{DemoProvider, StartProvider};
use crate::disks::Disks;
use crate::events::{Event, Events, runtime};
use crate::interception;
use crate::logging::Logging;
use crate::start_failure::{self, Remedy};
use crate::supervisor::{self, Supervisor};
use crate::{demo, memory};
use attached::Attached;
use banner::Banner;
use handover::lender::Lender;
use handover::offer::{self, Offer, Rival};
use handover::predecessor::{self, Predecessor};
use handover::successor;
use overrides::Overrides;
use switch::{ConfiguredParts, ProcessParts, SwitchError};

/// The source of a config.
pub enum Origin {
    /// No file: every key has its default.
    Default,
    /// A file, which is watched.
    File(PathBuf),
    /// A config translated from another program's command line.
    Translated(Box<Config>),
}

/// The beginning of an Egret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// With sockets of its own.
    New,
    /// With the sockets and the state of the Egret that runs with the same data directory.
    TakeOver,
}

/// The arguments of `egret run`.
pub struct Run {
    /// The source of the config.
    pub origin: Origin,
    /// Starts the built-in provider, if it runs as well.
    pub demo: Option<StartProvider>,
    /// Its beginning.
    pub beginning: Beginning,
    /// Options that take precedence over the config.
    pub overrides: Overrides,
    /// The command that the gateway is run for, if it is run for one.
    pub attached: Option<Attached>,
}

impl Run {
    /// Runs until stopped by a signal.
    pub fn run(mut self) -> Result<(), Failure> {
        let inherited = supervisor::inherited_sockets()?;
        let refused = memory::refuse_huge_pages();
        let demo = self.demo.map(|start| start()).transpose()?;
        let sources = self.read().map_err(Failure::misused)?;
        let Loaded { mut config, warnings } = self.load(&sources, demo.as_ref()).map_err(Failure::misused)?;
        data_dir::check_for_gateway(&config.data_dir)?;
        if demo.is_some() {
            for address in self.overrides.avoid_taken(&config) {
                say(format_args!("Another program uses {address}; the demo takes a free port instead."));
            }
            config = self.overrides.apply(config);
        }
        let logging = Logging::start(config.log)?;
        if let Err(error) = refused {
            tracing::warn!(%error, "the system may use huge pages, which increases resident memory");
        }
        let runtime = runtime()?;
        // Before anything listens, so no later signal or change of the file is missed.
        let mut events = {
            let _entered = runtime.enter();
            let mut events = Events::start(self.file())?;
            if let Some(attached) = &self.attached {
                events.watch_command(attached.end()?);
            }
            events
        };
        log_warnings(&config, &warnings);
        data_dir::warn_of_writers(&config.data_dir);
        if let (Origin::Default, None, Some(advice)) =
            (&self.origin, &self.attached, config_path::overlooked())
        {
            tracing::warn!("{advice}");
        }
        let predecessor = self.predecessor(&mut config)?;
        let inherited = match &predecessor {
            Some(predecessor) => predecessor.clone_sockets().map_err(Failure::failed)?,
            None => inherited,
        };
        let mut running = RunningEgret::start(self, sources, config, demo, logging, inherited, predecessor)?;
        let result = runtime.block_on(running.serve(&mut events));
        if let Some(lender) = running.lender.take() {
            lender.finish();
        }
        running.parts.close_alerts();
        if result.is_ok() {
            running.parts.close_quotas();
        }
        std::mem::take(&mut running.disks).close(result.is_err());
        running.parts.close_exporters();
        if running.run.attached.is_some() {
            Attached::clean_up(&running.config, running.parts.certificates());
        }
        // An aborted drain still has a waiting thread.
        runtime.shutdown_background();
        result
    }

    fn file(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(file) => Some(file),
            Origin::Default | Origin::Translated(_) => None,
        }
    }

    /// Returns the running Egret to take over from, if that is asked for and there is one.
    fn predecessor(&mut self, config: &mut Config) -> Result<Option<Predecessor>, Failure> {
        if self.beginning == Beginning::New {
            return Ok(None);
        }
        let Some(mut predecessor) = Predecessor::ask(&config.data_dir)? else {
            tracing::info!(data_dir = %config.data_dir.display(), "no Egret runs that could be taken over from");
            return Ok(None);
        };
        self.overrides.take_over(predecessor.addresses());
        *config = self.overrides.apply(config.clone());
        predecessor.listen(config.control.listen).map_err(|error| {
            Failure::Failed(format!("cannot listen on {} (`control.listen`): {error}", config.control.listen))
        })?;
        Ok(Some(predecessor))
    }

    /// Returns `true` if another process may take over: one that is started with the same arguments.
    fn is_replaceable(&self) -> bool {
        let is_alone = self.attached.is_none() && self.demo.is_none();
        is_alone && !matches!(self.origin, Origin::Translated(_)) && cfg!(target_os = "linux")
    }

    /// Returns `true` if the gateway is run for an isolated command.
    fn is_isolated(&self) -> bool {
        self.attached.as_ref().is_some_and(|attached| attached.channel.is_some())
    }

    /// Returns what its user can do about an address that cannot be listened on.
    fn remedy(&self) -> Remedy {
        match self.origin {
            Origin::Translated(_) => Remedy::Arguments,
            Origin::Default | Origin::File(_) => Remedy::Options,
        }
    }

    fn name(&self) -> String {
        self.file().map_or_else(|| "embedded default".to_owned(), |file| file.display().to_string())
    }

    fn read(&self) -> Result<ConfigSources, ConfigFileError> {
        self.file().map_or_else(|| Ok(ConfigSources::default()), config_file::read)
    }

    fn load(&self, sources: &ConfigSources, demo: Option<&DemoProvider>) -> Result<Loaded<Config>, Report> {
        let Loaded { config, warnings } = match &self.origin {
            Origin::File(_) => sources.load()?,
            Origin::Default => advice::load(&SourceSet::single(self.name(), ""))?,
            Origin::Translated(config) => {
                let warnings = Report::unplaced(&self.name(), advice::advise(config)).into_warnings();
                Loaded { config: (**config).clone(), warnings }
            }
        };
        let config = match &self.attached {
            Some(attached) => attached.adapt(config),
            None => config,
        };
        Ok(Loaded { config: self.overrides.apply(with_demo(config, demo)), warnings })
    }
}

/// Returns the addresses of the gateway's listeners, Unix sockets left out.
fn gateway_addresses(config: &Config) -> Vec<SocketAddr> {
    config.gateway.listen.iter().filter_map(|listener| listener.address.internet()).collect()
}

/// Adds the built-in provider, if it runs.
fn with_demo(mut config: Config, demo: Option<&DemoProvider>) -> Config {
    if let Some(provider) = demo {
        config.providers.insert(demo::NAME.to_owned(), demo::provider_config(provider.address));
    }
    config
}

/// The running parts.
struct RunningEgret {
    run: Run,
    /// The config file as last read, valid or not; the same content is not processed twice.
    last_read: Result<ConfigSources, ConfigFileError>,
    /// The messages of the last rejected config, if it was rejected.
    rejected: Option<Vec<String>>,
    /// The last texts in effect that came from the file itself: the measure of changes over the API.
    approved: SourceSet,
    /// The texts in effect.
    in_effect: SourceSet,
    versions: ConfigVersions,
    config: Config,
    parts: ConfiguredParts,
    /// The threads of the caches' disks.
    disks: Disks,
    gateway: Arc<Gateway>,
    source: Arc<ControlSource>,
    control: Control,
    /// Calls from the control port about the config's files.
    calls: mpsc::Receiver<ConfigCall>,
    /// Held by the check of a text for the control port.
    validations: Arc<Semaphore>,
    /// Removes its file at the end.
    token: ControlToken,
    demo: Option<DemoProvider>,
    logging: Logging,
    /// Sockets that the process was started with; a later config may use one.
    inherited: Vec<TcpListener>,
    supervisor: Supervisor,
    /// Offers this process to one that takes over.
    offer: Option<Offer>,
    /// Resolves once the process before this one uses no file in the data directory; `None` if there is none
    /// that does.
    released: Option<oneshot::Receiver<()>>,
    /// Reports to the process that has taken over.
    lender: Option<Lender>,
}

impl RunningEgret {
    fn start(
        run: Run,
        sources: ConfigSources,
        config: Config,
        demo: Option<DemoProvider>,
        logging: Logging,
        inherited: Vec<TcpListener>,
        mut predecessor: Option<Predecessor>,
    ) -> Result<Self, Failure> {
        interception::distrust_own(&config);
        let source = Arc::new(ControlSource::new(config.clone()));
        let mut token = control_token(&run, &config, predecessor.is_some());
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        let start_control = || {
            let identity = control_key::identity(&config.data_dir);
            let access = ConfigAccess { identity, token: token.token(), calls: sender.clone() };
            Control::start_with(&config.control, Arc::<ControlSource>::clone(&source), access, &inherited)
                .map_err(|error| start_failure::of_control(&error, run.remedy(), &gateway_addresses(&config)))
        };
        // The process before this one serves the control port until it has handed over.
        let started = if predecessor.is_none() { Some(start_control()?) } else { None };
        let own = started.as_ref().map_or(config.control.listen, Control::address);
        let process = ProcessParts {
            own: &[own],
            inherited: &inherited,
            is_isolated: run.is_isolated(),
            source: &source,
        };
        let failed = |error: SwitchError| error.of_start(run.remedy());
        let mut parts = ConfiguredParts::default();
        let opening = match &predecessor {
            Some(_) => parts.prepare_quotas(&config).map_err(failed)?,
            None => None,
        };
        let gateway = parts.switch(&config, process).map_err(failed)?;
        let inheritance =
            predecessor.as_mut().map(|one| predecessor::inherit(one, &gateway, opening)).transpose()?;
        let control = match started {
            Some(control) => control,
            None => start_control()?,
        };
        gateway.open();
        let released = predecessor.zip(inheritance).map(|(predecessor, inheritance)| {
            token.own();
            predecessor.serve(&gateway, inheritance)
        });
        let mut disks = Disks::default();
        if released.is_none() {
            disks.apply(gateway.cache_disks());
        }
        let used: Vec<_> = gateway.addresses().into_iter().chain([control.address().into()]).collect();
        // A service manager holds its sockets open. Those of another process are closed with their listeners.
        let inherited = if released.is_some() { Vec::new() } else { inherited };
        supervisor::warn_unused(&inherited, &used);
        let rival = if released.is_some() { Rival::Leaves } else { Rival::Stays };
        let offer = run.is_replaceable().then(|| Offer::of(&config, rival, &gateway, &control)).flatten();
        log_listeners(&[], &gateway.addresses());
        read_authorities(&config);
        let supervisor = Supervisor::from_env();
        supervisor
            .watch(&gateway)
            .map_err(|error| Failure::Failed(format!("cannot start the watchdog's thread: {error}")))?;
        let versions = ConfigVersions::new(&config.data_dir);
        if run.file().is_some() && run.attached.is_none() {
            versions.record(&sources.set, VersionOrigin::Start, None);
        }
        let running = Self {
            run,
            last_read: Ok(sources.clone()),
            rejected: None,
            approved: sources.set.clone(),
            in_effect: sources.set,
            versions,
            config,
            parts,
            disks,
            gateway,
            source,
            control,
            calls,
            validations: Arc::new(Semaphore::new(1)),
            token,
            demo,
            logging,
            inherited,
            supervisor,
            offer,
            released,
            lender: None,
        };
        running.show_banner();
        running.show_demo()?;
        running.attach()?;
        running.supervisor.ready();
        Ok(running)
    }

    /// Serves the command that the gateway is run for, if it is run for one.
    fn attach(&self) -> Result<(), Failure> {
        let Some(attached) = &self.run.attached else { return Ok(()) };
        attached.report(self.control.address(), &*self.source, &self.config.data_dir);
        let taken = attached.take_over(&self.gateway);
        if taken.is_err() {
            Attached::clean_up(&self.config, self.parts.certificates());
        }
        taken
    }

    /// Shows the user of a terminal what runs, and logs it for everybody else.
    fn show_banner(&self) {
        let control = reachable(self.control.address());
        if self.run.attached.is_some() {
            return;
        }
        if let Origin::Translated(_) = self.run.origin {
            return self.token.announce(control);
        }
        let file = self.run.file().map(|file| file.display().to_string());
        let listening = self.gateway.addresses();
        let banner = Banner { file: file.as_deref(), config: &self.config, listening: &listening, control };
        if io::stderr().is_terminal() {
            say(banner.text(&self.token.page(control)).trim_end());
        } else {
            self.token.announce(control);
            banner.log();
        }
    }

    fn show_demo(&self) -> Result<(), Failure> {
        let gateway = self.gateway.addresses().into_iter().find_map(ListenAddress::internet);
        let (Some(provider), Some(gateway)) = (&self.demo, gateway) else { return Ok(()) };
        print(&demo::lines(reachable(gateway), provider.address, reachable(self.control.address())))
    }

    /// Handles events until one of them is a request to stop.
    async fn serve(&mut self, events: &mut Events) -> Result<(), Failure> {
        // The file may have changed after it was read and before it was watched.
        self.reload(events, false).await;
        loop {
            if !self.run.is_isolated() {
                events.renew_secrets(self.source.secret_sources());
            }
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                Some(call) = self.calls.recv() => {
                    match call {
                        ConfigCall { request: ConfigRequest::Reload, reply } => {
                            // The client may be gone.
                            let _ = reply.send(self.reload_as_asked(events).await);
                        }
                        call => self.handle(call),
                    }
                    continue;
                }
                successor = offer::next_successor(&mut self.offer) => return self.hand_over(successor, events).await,
                () = predecessor::is_released(&mut self.released) => {
                    self.released = None;
                    self.disks.apply(self.gateway.cache_disks());
                    continue;
                }
            };
            match event {
                Event::Hangup => self.reload_with_notice(events).await,
                Event::FileChanged => self.reload(events, false).await,
                Event::SecretsRenewed => self.use_renewed_secrets(),
                Event::Replace if self.offer.is_some() => successor::start(),
                Event::Replace => tracing::error!("no process can take over: see the log of the start"),
                Event::Stop(signal) => {
                    tracing::info!(
                        signal,
                        in_flight = self.in_flight(),
                        "draining: no new connections; waiting for exchanges in flight; signal again (Ctrl-C) to stop at once"
                    );
                    return self.drain(events, signal).await;
                }
                Event::CommandEnded => {
                    tracing::info!(
                        in_flight = self.in_flight(),
                        "the command has ended; waiting for exchanges in flight"
                    );
                    let drained = self.drain(events, "").await;
                    if let Some(attached) = &self.run.attached {
                        attached.show_missed(&self.gateway.stats());
                    }
                    return drained;
                }
            }
        }
    }
}

/// Returns the token for changes of the config.
fn control_token(run: &Run, config: &Config, takes_over: bool) -> ControlToken {
    match run.attached {
        // The file belongs to a gateway that other gateways may run beside.
        Some(_) => ControlToken::none(),
        None if takes_over => ControlToken::adopt(&config.control, &config.data_dir),
        None => ControlToken::create(&config.control, &config.data_dir),
    }
}

/// Reads the system's authorities in a thread of its own, so that neither the start nor the first call over
/// TLS waits for them. Without the thread, that call reads them. They are hundreds of files, so a gateway
/// whose providers all speak HTTP in clear leaves them alone.
fn read_authorities(config: &Config) {
    let mut providers = config.providers.values();
    let has_tls = providers.any(|provider| provider.base_url().starts_with("https:"));
    if !has_tls && !config.providers.is_empty() && config.interception.is_none() {
        return;
    }
    let read = || drop(egret_net::tls::system_roots());
    if let Err(error) = std::thread::Builder::new().name("egret-roots".into()).spawn(read) {
        tracing::debug!(%error, "the thread that reads the system's authorities cannot start");
    }
}

/// Logs the new addresses.
fn log_listeners(before: &[ListenAddress], now: &[ListenAddress]) {
    for address in now.iter().filter(|address| !before.contains(address)) {
        tracing::info!(%address, "gateway listening");
    }
}

/// Logs warnings about the config.
fn log_warnings(config: &Config, warnings: &Report) {
    warn_unverified(&config.providers);
    for LocatedProblem { path, message, file, line, .. } in warnings.problems() {
        let at = line.map(|line| format!("{file}:{line}"));
        tracing::warn!(key = path, at, "{message}");
    }
}

/// Unverified providers are easily forgotten, so they are logged each time.
fn warn_unverified(providers: &Providers) {
    for (provider, config) in providers {
        if config.tls.verify == TlsVerify::DangerouslyOff {
            tracing::warn!(
                provider,
                "tls.verify is dangerously-off: anyone can impersonate this provider, and read and change all its traffic"
            );
        }
    }
}

/// Replaces an unspecified address by loopback, so the address can be called.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => {
            SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port()))
        }
        _ => address,
    }
}
