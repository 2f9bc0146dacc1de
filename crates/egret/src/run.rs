//! `egret run`: starts the parts, reloads them, and stops them in order.

pub mod attached;
mod config_calls;
pub mod handover;
mod names;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_cluster::ClusterThread;
use egret_control::{CALLS_MAX, ConfigAccess, ConfigCall, Control};
use egret_diagnosis::Exports;
use egret_export::{ExporterContext, Exporters};
use egret_gateway::Gateway;
use egret_gateway::config::{InterceptionParts, Parts, Providers};
use egret_net::config::TlsVerify;
use egret_quota::Stores;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::config_file::{self, ConfigFileError};
use crate::config_versions::{ConfigVersions, VersionOrigin};
use crate::control_source::ControlSource;
use crate::control_token::ControlToken;
use crate::demo::Provider;
use crate::disks::Disks;
use crate::durable::{DurableQuotas, QuotaFileError};
use crate::events::{Event, Events, runtime};
use crate::exports::PseudonymKey;
use crate::failure::Failure;
use crate::interception::{self, Certificates};
use crate::logging::Logging;
use crate::output::print;
use crate::supervisor::{self, Supervisor};
use crate::{cluster, demo, memory, start_failure};
use attached::Attached;

/// Supervisors signal a process and then its group, so one request to stop arrives as two signals within this
/// time.
const SIGNAL_GROUP_DELAY: Duration = Duration::from_millis(100);

/// The source of a config.
pub enum Origin {
    /// No file: every key has its default.
    Default,
    /// A file, which is watched.
    File(PathBuf),
    /// A config translated from another program's command line.
    Translated(Box<Config>),
}

/// The arguments of `egret run`.
pub struct Run {
    /// The source of the config.
    pub origin: Origin,
    /// `true` if the built-in provider runs as well.
    pub demo: bool,
    /// The command that the gateway is run for, if it is run for one.
    pub attached: Option<Attached>,
}

impl Run {
    /// Runs until stopped by a signal.
    pub fn run(self) -> Result<(), Failure> {
        let inherited = supervisor::inherited_sockets()?;
        let refused = memory::refuse_huge_pages();
        let demo = if self.demo { Some(demo::start()?) } else { None };
        let text = self.read().map_err(|message| {
            Failure::Misused(format!(
                "{message}; choose another file with --config, or omit the option: every key has a default"
            ))
        })?;
        let config = self.parse(&text, demo.as_ref()).map_err(Failure::misused)?;
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
        let mut running = RunningEgret::start(self, text, config, demo, logging, inherited)?;
        let result = runtime.block_on(running.serve(&mut events));
        if result.is_ok() {
            running.close_quotas();
        }
        std::mem::take(&mut running.disks).close(result.is_err());
        running.exporters.close();
        if let (Some(_), Some(certificates)) = (&running.run.attached, &running.certificates) {
            Attached::clean_up(&running.config, certificates);
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

    fn name(&self) -> String {
        self.file().map_or_else(|| "embedded default".to_owned(), |file| file.display().to_string())
    }

    fn read(&self) -> Result<String, ConfigFileError> {
        self.file().map_or_else(|| Ok(String::new()), config_file::read)
    }

    fn parse(&self, text: &str, demo: Option<&Provider>) -> Result<Config, egret_config::Report> {
        let config = match &self.origin {
            Origin::Translated(config) => (**config).clone(),
            Origin::Default | Origin::File(_) => Config::parse(&self.name(), text)?,
        };
        let config = match &self.attached {
            Some(attached) => attached.adapt(config),
            None => config,
        };
        Ok(with_demo(config, demo))
    }
}

/// Adds the built-in provider, if it runs.
fn with_demo(mut config: Config, demo: Option<&Provider>) -> Config {
    if let Some(provider) = demo {
        config.providers.insert(demo::NAME.to_owned(), demo::provider_config(provider.address()));
    }
    config
}

/// The running parts.
struct RunningEgret {
    run: Run,
    /// The config file as last read, valid or not; the same content is not processed twice.
    last_read: Result<String, ConfigFileError>,
    /// The messages of the last rejected config, if it was rejected.
    rejected: Option<Vec<String>>,
    /// The last text in effect that came from the file itself: the measure of changes over the API.
    approved: String,
    /// The text in effect.
    in_effect: String,
    versions: ConfigVersions,
    config: Config,
    /// Opened by the first config that needs it.
    quotas: Option<DurableQuotas>,
    /// Joined by the first config that names a cluster.
    cluster: Option<ClusterThread>,
    /// The certificates for intercepted hosts, from the first config that intercepts any.
    certificates: Option<Certificates>,
    /// The threads of the caches' disks.
    disks: Disks,
    exporters: Exporters,
    key: PseudonymKey,
    gateway: Arc<Gateway>,
    source: Arc<ControlSource>,
    control: Control,
    /// Calls from the control port about the config's files.
    calls: mpsc::Receiver<ConfigCall>,
    /// Removes its file at the end.
    _token: ControlToken,
    demo: Option<Provider>,
    logging: Logging,
    /// Sockets that the process was started with; a later config may use one.
    inherited: Vec<TcpListener>,
    supervisor: Supervisor,
}

impl RunningEgret {
    fn start(
        run: Run,
        text: String,
        config: Config,
        demo: Option<Provider>,
        logging: Logging,
        inherited: Vec<TcpListener>,
    ) -> Result<Self, Failure> {
        log_warnings(&config);
        interception::distrust_own(&config);
        let exporters =
            Exporters::default().open(&config.exporters, open_options(&config)).map_err(Failure::failed)?;
        let source = Arc::new(ControlSource::new(config.clone(), exporters.clone()));
        // The file belongs to a gateway that other gateways may run beside.
        let token = match run.attached {
            Some(_) => ControlToken::none(),
            None => ControlToken::create(&config.control, &config.data_dir),
        };
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        let access = ConfigAccess { token: token.token(), calls: sender };
        let control_source = Arc::<ControlSource>::clone(&source);
        let control = Control::start_with(&config.control, control_source, access, &inherited)
            .map_err(|error| start_failure::of_control(&error))?;
        let quotas = open_quotas(&config).map_err(Failure::failed)?;
        let mut key = PseudonymKey::default();
        let exports = key.exports(&config, &exporters).map_err(Failure::failed)?;
        let cluster = cluster::join(&config).map_err(Failure::failed)?;
        source.set_cluster(cluster.as_ref());
        let certificates = Certificates::of(&config, None).map_err(Failure::failed)?;
        let kept =
            Kept { quotas: quotas.as_ref(), cluster: cluster.as_ref(), certificates: certificates.as_ref() };
        let parts = Parts { inherited: &inherited, ..parts(&config, kept, &exports) };
        let gateway =
            Gateway::start(parts, &[control.address()]).map_err(|error| start_failure::of_gateway(&error))?;
        source.set_gateway(Arc::clone(&gateway));
        source.set_certificates(certificates.clone());
        let mut disks = Disks::default();
        disks.apply(gateway.cache_disks());
        log_listeners(&[], &gateway.addresses());
        let used: Vec<_> = gateway.addresses().into_iter().chain([control.address()]).collect();
        supervisor::warn_unused(&inherited, &used);
        let supervisor = Supervisor::from_env();
        supervisor
            .watch(&gateway)
            .map_err(|error| Failure::Failed(format!("cannot start the watchdog's thread: {error}")))?;
        token.announce(reachable(control.address()));
        let versions = ConfigVersions::new(&config.data_dir);
        if run.file().is_some() && run.attached.is_none() {
            versions.record(&text, VersionOrigin::Start);
        }
        let running = Self {
            run,
            last_read: Ok(text.clone()),
            rejected: None,
            approved: text.clone(),
            in_effect: text,
            versions,
            config,
            quotas,
            cluster,
            certificates,
            disks,
            exporters,
            key,
            gateway,
            source,
            control,
            calls,
            _token: token,
            demo,
            logging,
            inherited,
            supervisor,
        };
        running.show_demo()?;
        if let Some(attached) = &running.run.attached {
            attached.report(running.control.address(), &*running.source);
            let taken = attached.take_over(&running.gateway);
            if let (Err(_), Some(certificates)) = (&taken, &running.certificates) {
                Attached::clean_up(&running.config, certificates);
            }
            taken?;
        }
        running.supervisor.ready();
        Ok(running)
    }

    fn show_demo(&self) -> Result<(), Failure> {
        let (Some(provider), Some(gateway)) = (&self.demo, self.gateway.addresses().first().copied()) else {
            return Ok(());
        };
        print(&demo::lines(reachable(gateway), provider.address(), reachable(self.control.address())))
    }

    /// Handles events until one of them is a request to stop.
    async fn serve(&mut self, events: &mut Events) -> Result<(), Failure> {
        // The file may have changed after it was read and before it was watched.
        self.reload(events, false).await;
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                Some(call) = self.calls.recv() => {
                    self.handle(call);
                    continue;
                }
            };
            match event {
                Event::Hangup => {
                    self.supervisor.reloading();
                    self.reload(events, true).await;
                    self.supervisor.reloaded(self.rejected.is_none());
                }
                Event::FileChanged => self.reload(events, false).await,
                Event::Stop(signal) => {
                    tracing::info!(
                        signal,
                        "draining: no new connections; waiting for exchanges in flight, another signal stops immediately"
                    );
                    return self.drain(events, signal).await;
                }
                Event::CommandEnded => {
                    tracing::info!("the command has ended; waiting for exchanges in flight");
                    return self.drain(events, "").await;
                }
            }
        }
    }

    /// Waits until no exchange is left. Returns immediately on another request to stop after the `first`
    /// signal.
    async fn drain(&self, events: &mut Events, first: &'static str) -> Result<(), Failure> {
        let stopped_at = Instant::now();
        self.supervisor.stopping(self.config.gateway.timeouts.drain);
        let (done, mut drained) = mpsc::channel(1);
        let gateway = Arc::clone(&self.gateway);
        std::thread::Builder::new()
            .name("egret-drain".into())
            .spawn(move || done.blocking_send(gateway.drain()))
            .map_err(|error| Failure::Failed(format!("cannot drain: {error}")))?;
        let stopped_again = async {
            loop {
                match events.next().await {
                    Event::Stop(signal) if signal != first || stopped_at.elapsed() > SIGNAL_GROUP_DELAY => {
                        return;
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            complete = drained.recv() => {
                if complete == Some(true) {
                    tracing::info!("drained");
                } else {
                    tracing::warn!("exchanges still in flight after `gateway.timeouts.drain` were aborted");
                }
                Ok(())
            }
            () = stopped_again => Err(Failure::Failed("stopped immediately: exchanges in flight were aborted".to_owned())),
        }
    }

    /// Applies the current config file, or changes nothing and logs the errors. An unchanged file is applied
    /// again only if `forced`, for example to reopen the access log.
    async fn reload(&mut self, events: &mut Events, forced: bool) {
        let file = match &self.run.origin {
            Origin::File(file) => file.clone(),
            Origin::Translated(config) if forced => {
                // Rereads its certificates and reopens the access log.
                let config = (**config).clone();
                let applied = self.apply(config);
                return self.log_rejected(applied, "command line");
            }
            Origin::Default if forced => {
                tracing::info!("nothing to reload: Egret runs without a config file");
                return;
            }
            Origin::Default | Origin::Translated(_) => return,
        };
        events.refresh();
        let read = events.read_settled(&file).await;
        let is_known = read == self.last_read;
        self.last_read.clone_from(&read);
        if let Ok(text) = &read {
            events.watch_others(&file, text);
        }
        let parsed = read.clone().map_err(messages).and_then(|text| self.parse_again(&text));
        // The same text may refer to secrets that have changed.
        let is_repeat = !forced && is_known;
        if is_repeat && parsed.as_ref().is_ok_and(|config| self.with_fixed(config.clone()) == self.config) {
            return;
        }
        let applied = parsed.and_then(|config| self.apply(config));
        if let (Ok(()), Ok(text)) = (&applied, read) {
            self.approve(text);
        }
        let rejected = applied.clone().err();
        let is_logged = rejected.is_some() && rejected == self.rejected;
        self.rejected = rejected;
        if !(is_repeat && is_logged) {
            self.log_rejected(applied, &file.display().to_string());
        }
    }

    /// Remembers a text of the file that is now in effect. The API's own text is in effect already.
    fn approve(&mut self, text: String) {
        if text != self.in_effect {
            self.versions.record(&text, VersionOrigin::File);
            self.approved.clone_from(&text);
            self.in_effect = text;
        }
    }

    fn log_rejected(&self, applied: Result<(), Vec<String>>, origin: &str) {
        let Err(messages) = applied else { return };
        self.gateway.count_refused_reload();
        for message in messages {
            tracing::error!("config refused: {message}");
        }
        tracing::error!(file = origin, "the previous config stays in effect");
    }

    fn parse_again(&self, text: &str) -> Result<Config, Vec<String>> {
        // A file being written is briefly empty, and an empty config would be valid.
        if text.trim().is_empty() {
            return Err(vec![format!(
                "{}: the file is empty, which a reload treats as a mistake",
                self.run.name()
            )]);
        }
        self.run.parse(text, self.demo.as_ref()).map_err(|report| report.summaries())
    }

    /// Applies the whole config or nothing. The messages say why it was rejected.
    fn apply(&mut self, new: Config) -> Result<(), Vec<String>> {
        let new = self.keep_fixed(new);
        let listened = self.gateway.addresses();
        if self.quotas.is_none() {
            self.quotas = open_quotas(&new).map_err(messages)?;
        }
        let exporters = self.exporters.open(&new.exporters, open_options(&new)).map_err(messages)?;
        let exports = self.key.exports(&new, &exporters).map_err(messages)?;
        let joined = if self.cluster.is_none() { cluster::join(&new).map_err(messages)? } else { None };
        let certificates = Certificates::of(&new, self.certificates.as_ref()).map_err(messages)?;
        let kept = Kept {
            quotas: self.quotas.as_ref(),
            cluster: self.cluster.as_ref().or(joined.as_ref()),
            certificates: certificates.as_ref(),
        };
        let parts = Parts { inherited: &self.inherited, ..parts(&new, kept, &exports) };
        if let Err(error) = self.gateway.reload(parts) {
            exporters.close_others(&self.exporters);
            // The next config may name another cluster.
            joined.into_iter().for_each(ClusterThread::leave);
            return Err(messages(error));
        }
        self.cluster = self.cluster.take().or(joined);
        // Kept even if nothing is intercepted for a while: clients trust this authority.
        self.certificates = certificates.or(self.certificates.take());
        self.source.set_certificates(self.certificates.clone());
        self.source.set_cluster(self.cluster.as_ref());
        if let (Some(thread), Some(cluster)) = (&self.cluster, &new.cluster) {
            thread.reconfigure(cluster);
        }
        self.disks.apply(self.gateway.cache_disks());
        self.change_exporters(exporters);
        log_listeners(&listened, &self.gateway.addresses());
        log_warnings(&new);
        self.logging.set_level(new.log.level);
        self.source.set_config(new.clone());
        self.config = new;
        tracing::info!("config reloaded");
        Ok(())
    }

    /// Switches to the new exporters. The old ones write their remaining data on a separate thread.
    fn change_exporters(&mut self, exporters: Exporters) {
        let old = std::mem::replace(&mut self.exporters, exporters.clone());
        self.source.set_exporters(exporters.clone());
        let close = move || old.close_others(&exporters);
        if let Err(error) = std::thread::Builder::new().name("egret-close".into()).spawn(close) {
            tracing::error!("removed exporters are not closed: {error}");
        }
    }

    /// Writes unused loans back to the quotas. Call it after the drain, when nothing draws from them.
    fn close_quotas(&mut self) {
        if let Some(quotas) = self.quotas.take() {
            self.gateway.give_quotas_back();
            quotas.close();
        }
        if let Some(cluster) = self.cluster.take() {
            cluster.leave();
        }
    }

    /// Returns the new config with the old values of keys that cannot change while Egret runs, and logs which
    /// have changed.
    fn keep_fixed(&self, new: Config) -> Config {
        for key in self.fixed_changes(&new) {
            tracing::warn!(key, "this key has changed, but only a restart applies it");
        }
        self.with_fixed(new)
    }

    /// Returns the keys that have changed in the new config, but cannot change while Egret runs.
    fn fixed_changes(&self, new: &Config) -> Vec<&'static str> {
        let old = &self.config;
        let fixed = [
            ("control", old.control != new.control),
            ("data_dir", old.data_dir != new.data_dir),
            ("cluster", !is_cluster_kept(old, new)),
            ("log.format", old.log.format != new.log.format),
            ("gateway.workers", old.gateway.workers != new.gateway.workers),
        ];
        fixed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }

    /// Does the same without logging.
    fn with_fixed(&self, new: Config) -> Config {
        let old = &self.config;
        let mut kept = Config { control: old.control.clone(), data_dir: old.data_dir.clone(), ..new };
        if !is_cluster_kept(old, &kept) {
            kept.cluster.clone_from(&old.cluster);
        }
        kept.log.format = old.log.format;
        kept.gateway.workers = old.gateway.workers;
        kept
    }
}

/// Returns `true` if the gateway need not leave its cluster.
fn is_cluster_kept(old: &Config, new: &Config) -> bool {
    match (&old.cluster, &new.cluster) {
        (Some(old), Some(new)) => old.is_same_cluster(new),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

/// Returns the message of an error as the only reason for rejecting a config.
fn messages(error: impl std::fmt::Display) -> Vec<String> {
    vec![error.to_string()]
}

/// Opens the quota file, if a quota is stored in it.
fn open_quotas(config: &Config) -> Result<Option<DurableQuotas>, QuotaFileError> {
    config.has_durable_quotas().then(|| DurableQuotas::open(&config.data_dir)).transpose()
}

/// Returns the options for opening exporters.
fn open_options(config: &Config) -> ExporterContext<'_> {
    ExporterContext { version: env!("CARGO_PKG_VERSION"), data_dir: &config.data_dir }
}

/// The parts that outlive a reload.
#[derive(Clone, Copy)]
struct Kept<'a> {
    quotas: Option<&'a DurableQuotas>,
    cluster: Option<&'a ClusterThread>,
    certificates: Option<&'a Certificates>,
}

fn parts<'a>(config: &'a Config, kept: Kept<'a>, exports: &'a Exports) -> Parts<'a> {
    let Kept { quotas, cluster, certificates } = kept;
    let stores =
        Stores { ledger: quotas.map(DurableQuotas::ledger), cluster: cluster.map(ClusterThread::sink) };
    let shared = cluster.map(ClusterThread::shared).unwrap_or_default();
    let configs = certificates.map(Certificates::configs);
    let interception = config.interception.as_ref().map(|config| InterceptionParts { config, configs });
    Parts { stores, shared, data_dir: Some(&*config.data_dir), interception, ..config.gateway_parts(exports) }
}

/// Logs the new addresses.
fn log_listeners(before: &[SocketAddr], now: &[SocketAddr]) {
    for address in now.iter().filter(|address| !before.contains(address)) {
        tracing::info!(%address, "gateway listening");
    }
}

/// Logs warnings about the config.
fn log_warnings(config: &Config) {
    warn_unverified(&config.providers);
    for warning in config.warnings() {
        tracing::warn!(key = warning.path, "{}", warning.message);
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
