//! One turn: starts provider and proxy, warms up, measures, and stops them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use egret_measure::statistics::real;

use super::progress::Progress;
use super::setup::TurnSetup;
use crate::client::{ClientCommand, ClientTask};
use crate::client_settings::{Amount, ClientKind, ClientSettings, Protocol};
use crate::config::{Figure, ProviderKind, Reach, ServiceKind};
use crate::counters::{self, CountersError, ProviderCounters};
use crate::external_url::ExternalUrl;
use crate::figures::Figures;
use crate::host::{Host, HostError, HostProcess};
use crate::http::{PROBE_TIMEOUT, Server, authority, bracketed};
use crate::interrupt::{Interrupt, Interrupted};
use crate::process::{Launch, Usage};
use crate::results::{ProcessFigures, ResultsError, Turn, write_whole};
use crate::template::{self, Values};
use crate::turn_files::{PROVIDER_CA, ProcessPlace, StartProblem, TurnDirectories, TurnFiles};
use crate::{clock, machine};

/// Maximum time for a process to become ready. A large proxy in Python needs 12 s of a core to start, and
/// waits for files on the Internet that it may not reach.
const READY_DEADLINE: Duration = Duration::from_mins(2);

/// Interval between checks for readiness.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Interval between samples of CPU and memory. Reading memory maps costs the measured process some
/// microseconds.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Paths of the control API that are asked while the client runs.
const CONTROL_PATHS: [&str; 2] = ["/healthz", "/metrics"];

/// File in the client's directory for its standard output.
const CLIENT_OUT: &str = "client.out";

/// Additional time for a client with a fixed duration to end.
const END_GRACE: Duration = Duration::from_secs(30);

/// Maximum number of attempts with a client that hangs: siege 4.0.7 occasionally does.
const TRIES_MAX: u32 = 3;

/// The reason why a turn did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TurnError {
    /// A process failed. The text names it and includes its output.
    #[error("{0}")]
    Failed(String),
    /// A machine did not do what it was asked.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A process cannot be started.
    #[error(transparent)]
    Start(#[from] StartProblem),
    /// The provider's counters cannot be read.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// The results cannot be written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The run was interrupted.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl From<String> for TurnError {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

/// Runs the turn. Afterwards its folder contains everything except `turn.json`.
pub(crate) fn run(
    setup: &TurnSetup<'_>,
    interrupt: &Interrupt,
    progress: &mut Progress<'_>,
) -> Result<Turn, TurnError> {
    let client = setup.experiment.client(setup.case, setup.scenario);
    let mut running = RunningTurn::start(setup, interrupt)?;
    if client.warm_up_requests > 0 {
        let amount = Amount::Requests(client.warm_up_requests.max(client.concurrency.into()));
        let figures = running.run(&client, amount, "warm-up", progress)?.figures;
        if !setup.experiment.failures_expected && figures.failed * 2 > figures.requests {
            let Figures { failed, requests, .. } = figures;
            return Err(format!(
                "{failed} failures in a warm-up of {requests} requests to {}: is the path right?",
                running.urls[0]
            )
            .into());
        }
    }
    let started = clock::iso(SystemTime::now());
    let measured = running.run(&client, client.amount, "measured", progress)?;
    let counted = running.counted()?;
    let Figures { failed, requests, .. } = measured.figures;
    if requests == 0 || failed > requests.saturating_mul(2) {
        return Err(format!("{}: {requests} requests completed and {failed} failed", running.urls[0]).into());
    }
    write_whole(&setup.directory.join("samples.csv"), &measured.samples)?;
    let load_average = machine::load_average();
    running.end()?;
    tidy(setup.directory)?;
    Ok(Turn {
        round: setup.round,
        case: setup.case.name.clone(),
        scenario: setup.scenario.name.clone(),
        started,
        figures: measured.figures,
        processes: measured.processes,
        counted,
        store_calls: measured.store_calls,
        control_slowest_ms: measured.control_slowest_ms,
        load_average,
    })
}

/// Keeps figures, logs and filled-in configs, and deletes the working directories.
fn tidy(directory: &Path) -> Result<(), TurnError> {
    let failed = |path: &Path, error| TurnError::Results(ResultsError::Io { path: path.to_owned(), error });
    let measured = directory.join("measured");
    for entry in std::fs::read_dir(&measured).map_err(|error| failed(&measured, error))?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue; // settings of a client, such as siege's
        }
        let kept = directory.join(entry.file_name());
        std::fs::rename(entry.path(), &kept).map_err(|error| failed(&kept, error))?;
    }
    for entry in std::fs::read_dir(directory).map_err(|error| failed(directory, error))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            std::fs::remove_dir_all(&path).map_err(|error| failed(&path, error))?;
        }
    }
    Ok(())
}

/// A program that the proxies need, started and ready.
struct RunningService<'a> {
    name: &'a str,
    process: HostProcess<'a>,
    /// Address on which the service listens.
    server: Server,
    /// Its calls are counted.
    is_redis: bool,
}

/// Provider, services and proxies, started and ready.
struct RunningTurn<'a> {
    setup: &'a TurnSetup<'a>,
    interrupt: &'a Interrupt,
    /// Declared before services and provider, so they are dropped first.
    proxies: Vec<HostProcess<'a>>,
    services: Vec<RunningService<'a>>,
    provider: HostProcess<'a>,
    directories: TurnDirectories,
    /// The provider, if it has counters.
    counters: Option<Server>,
    /// The URLs over which the client spreads its requests; at least one.
    urls: Vec<String>,
    /// `HOST:PORT` of the proxy, if the client asks it for tunnels to the URLs.
    tunnels_through: Option<String>,
    /// Field lines that each request carries.
    fields: Vec<String>,
    /// The control API of the first proxy, if the experiment asks how soon it responds.
    control: Option<Server>,
}

/// The results of a run of the client.
struct Measured {
    figures: Figures,
    processes: BTreeMap<String, ProcessFigures>,
    /// Calls that the store received, if there is one.
    store_calls: Option<u64>,
    /// Longest time that the control API took to respond.
    control_slowest_ms: Option<f64>,
    samples: String,
}

impl<'a> RunningTurn<'a> {
    fn start(setup: &'a TurnSetup<'a>, interrupt: &'a Interrupt) -> Result<Self, TurnError> {
        let (experiment, hosts, scenario) = (setup.experiment, setup.hosts, setup.scenario);
        let places = Places::find(setup)?;
        let shared = places.shared(setup);
        let path = template::fill(experiment.path_of(setup.case, scenario), &shared)
            .map_err(|unknown| format!("`@{{{}}}` in the path has no value", unknown.name))?;
        let directories = TurnDirectories {
            client: hosts.client.begin_turn(setup.directory)?,
            proxy: hosts.proxy.begin_turn(setup.directory)?,
            provider: hosts.provider.begin_turn(setup.directory)?,
        };
        let configs = setup.configs;
        let files = TurnFiles { experiment, hosts, configs, directories: &directories, shared };
        let starting = Starting { setup, interrupt, files: &files };
        let provider = hosts.provider.start(files.provider(places.provider)?)?;
        let provider_server = Server::at(hosts.provider.listen, places.provider.port);
        starting.until_provider_ready(&provider, &provider_server)?;
        let services = starting.services(&places.services)?;
        let proxies = starting.proxies(&places.proxies)?;
        let fields = files.fields(scenario)?;
        let bases = if let Some(url) = scenario.url.as_deref() {
            let url = ExternalUrl::parse(url).map_err(|error| error.to_string())?;
            starting.check_external(&url, &fields)?;
            vec![url.base()]
        } else if proxies.is_empty() {
            let scheme = provider_scheme(setup);
            vec![format!("{scheme}://{}", authority(&hosts.provider.address, places.provider.port))]
        } else {
            places.proxies.iter().map(|place| proxied_base(setup, &places.provider, place)).collect()
        };
        let urls = bases.into_iter().map(|base| base + &path).collect();
        let tunnels = scenario.reach == Reach::Tunnel;
        let tunnels_through = places.proxies.first().filter(|_| tunnels);
        let tunnels_through = tunnels_through.map(|place| authority(&hosts.proxy.address, place.port));
        let counters = experiment.provider.counts().then_some(provider_server);
        let is_watched = scenario.egret.is_some() && experiment.has_figure(Figure::ControlSlowest);
        let control = places.proxies.first().filter(|_| is_watched);
        let control = control.map(|place| Server::at(Ipv4Addr::LOCALHOST.into(), place.control_port));
        Ok(Self {
            setup,
            interrupt,
            proxies,
            services,
            provider,
            directories,
            counters,
            urls,
            tunnels_through,
            fields,
            control,
        })
    }

    /// Ends proxies, services and provider, and copies their files to the turn's folder.
    fn end(self) -> Result<(), TurnError> {
        let Self { setup, proxies, services, provider, directories, .. } = self;
        drop(proxies);
        drop(services);
        drop(provider);
        setup.hosts.proxy.fetch(&directories.proxy, setup.directory)?;
        Ok(setup.hosts.provider.fetch(&directories.provider, setup.directory)?)
    }

    /// Reads the provider's counters since the last start of the client.
    fn counted(&self) -> Result<Option<ProviderCounters>, TurnError> {
        let read = |server: &Server| counters::read(&self.setup.hosts.provider, server);
        Ok(self.counters.as_ref().map(read).transpose()?)
    }

    /// Calls that the stores of the turn have received; `None` if it has none.
    fn store_calls(&self) -> Result<Option<u64>, TurnError> {
        let host = &self.setup.hosts.proxy;
        let calls = |service: &RunningService<'_>| {
            let calls = host.redis_calls(&service.server)?;
            calls.ok_or_else(|| TurnError::Failed(format!("{} does not say what it received", service.name)))
        };
        let stores = self.services.iter().filter(|service| service.is_redis);
        let calls = stores.map(calls).collect::<Result<Vec<u64>, TurnError>>()?;
        Ok((!calls.is_empty()).then(|| calls.iter().sum()))
    }

    /// Runs the client to its end. Retries siege if it hangs.
    fn run(
        &mut self,
        client: &ClientSettings,
        amount: Amount,
        name: &str,
        progress: &mut Progress<'_>,
    ) -> Result<Measured, TurnError> {
        let mut tries = 1;
        loop {
            match self.try_run(client, amount, name, progress)? {
                Some(measured) => return Ok(measured),
                None if client.kind == ClientKind::Siege && tries < TRIES_MAX => tries += 1,
                None => {
                    return Err(format!(
                        "{} did not end within {} s",
                        client.kind,
                        deadline(client, amount).as_secs()
                    )
                    .into());
                }
            }
        }
    }

    /// Runs the client once. Returns `None` if it did not end in time.
    fn try_run(
        &mut self,
        client: &ClientSettings,
        amount: Amount,
        name: &str,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Measured>, TurnError> {
        let (hosts, host) = (self.setup.hosts, &self.setup.hosts.client);
        let (directory, folder) = (self.directories.client.join(name), self.setup.directory.join(name));
        host.empty_directory(&directory)?;
        let launch = self.client(client, amount, &directory)?;
        if let Some(server) = &self.counters {
            counters::reset(&hosts.provider, server)?;
        }
        let calls_before = self.store_calls()?;
        let mut watch = ResourceSampler::start(self)?;
        let ended_before_s = host.ended_cpu_s()?;
        let part = host.start(launch)?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = part.ended()? {
                break status;
            }
            self.check()?;
            if start.elapsed() > deadline(client, amount) {
                return Ok(None);
            }
            watch.sample(self, &part)?;
            progress.tick(&format!("{name}, {} s", start.elapsed().as_secs()));
            self.interrupt.wait(hosts.look_again())?;
        };
        let used = watch.end(self, host.ended_cpu_s()? - ended_before_s)?;
        let store_calls = self.store_calls()?.zip(calls_before);
        let store_calls = store_calls.map(|(after, before)| after.saturating_sub(before));
        self.check()?;
        host.fetch(&directory, &folder)?;
        let printed = std::fs::read(folder.join(CLIENT_OUT)).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        let figures = client.kind.figures(&folder, &printed);
        let figures = figures.map_err(|why| {
            format!("{}: {why} ({status}); its output:\n{}", client.kind, part.last_lines())
        })?;
        let processes = used.into_iter().map(|(part, used)| (part, used.figures(figures.requests))).collect();
        let ResourceSampler { control_slowest_ms, samples, .. } = watch;
        Ok(Some(Measured { figures, processes, store_calls, control_slowest_ms, samples }))
    }

    fn client(&self, client: &ClientSettings, amount: Amount, directory: &Path) -> Result<Launch, TurnError> {
        let host = &self.setup.hosts.client;
        let proxy = self.tunnels_through.as_deref();
        let task = ClientTask { client, amount, urls: &self.urls, proxy, fields: &self.fields, directory };
        let program = match client.kind.program() {
            Some(name) => host.locate(name)?.ok_or_else(|| format!("{name} is not installed"))?,
            None => host.about.egret.clone(),
        };
        let ClientCommand { arguments, files } = client.kind.command(&task);
        for (name, content) in files {
            host.write(&directory.join(name), &content)?;
        }
        Ok(Launch {
            name: format!("the client {}", client.kind),
            program,
            arguments,
            environment: BTreeMap::new(),
            directory: directory.to_owned(),
            home: directory.to_owned(),
            stdout: directory.join(CLIENT_OUT),
            stderr: directory.join("client.err"),
            core: self.setup.pinned.get("client").copied(),
        })
    }

    /// Fails if the provider, a service or a proxy has ended.
    fn check(&self) -> Result<(), TurnError> {
        for (_, part) in self.parts() {
            if let Some(status) = part.ended()? {
                let message = format!(
                    "{} ended during the measurement ({status}); its output:\n{}",
                    part.name(),
                    part.last_lines()
                );
                return Err(message.into());
            }
        }
        Ok(())
    }

    /// All processes but the client's, with the names of their parts. All proxies are one part.
    fn parts(&self) -> impl Iterator<Item = (&'a str, &HostProcess<'a>)> {
        let services = self.services.iter().map(|service| (service.name, &service.process));
        let proxies = self.proxies.iter().map(|proxy| ("proxy", proxy));
        [("provider", &self.provider)].into_iter().chain(services).chain(proxies)
    }

    /// Resources used so far by each part.
    fn usage(&self) -> Result<BTreeMap<String, Usage>, HostError> {
        let mut usage: BTreeMap<String, Usage> = BTreeMap::new();
        for (name, part) in self.parts() {
            let of_part = usage.entry(name.to_owned()).or_default();
            let Usage { cpu_s, memory_bytes } = part.usage()?;
            of_part.cpu_s += cpu_s;
            of_part.memory_bytes += memory_bytes;
        }
        Ok(usage)
    }
}

/// Samples the resources of the processes while the client runs.
struct ResourceSampler {
    started: Instant,
    sampled: Instant,
    before: BTreeMap<String, f64>,
    used: BTreeMap<String, ResourceUse>,
    control_slowest_ms: Option<f64>,
    /// CSV with a row for each process and sample.
    samples: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct ResourceUse {
    cpu_s: f64,
    memory_bytes_max: u64,
    memory_bytes_end: u64,
}

impl ResourceUse {
    fn figures(self, requests: u64) -> ProcessFigures {
        let Self { cpu_s, memory_bytes_max, memory_bytes_end } = self;
        let cpu_us_per_request = cpu_s * 1e6 / real(requests.max(1));
        ProcessFigures { cpu_s, cpu_us_per_request, memory_bytes_max, memory_bytes_end }
    }
}

impl ResourceSampler {
    fn start(running: &RunningTurn<'_>) -> Result<Self, HostError> {
        let now = Instant::now();
        let mut before: BTreeMap<String, f64> = BTreeMap::new();
        for (name, part) in running.parts() {
            *before.entry(name.to_owned()).or_default() += part.cpu_s()?;
        }
        Ok(Self {
            started: now,
            sampled: now,
            before,
            used: BTreeMap::new(),
            control_slowest_ms: None,
            samples: "seconds,part,cpu_s,memory_bytes\n".into(),
        })
    }

    fn sample(&mut self, running: &RunningTurn<'_>, client: &HostProcess<'_>) -> Result<(), HostError> {
        if self.sampled.elapsed() < SAMPLE_EVERY {
            return Ok(());
        }
        self.sampled = Instant::now();
        for (name, usage) in running.usage()? {
            self.note(&name, usage);
        }
        self.note("client", client.usage()?);
        if let Some(control) = &running.control {
            self.ask(&running.setup.hosts.proxy, control)?;
        }
        Ok(())
    }

    /// Asks the control API, and notes how long it takes to respond. No response counts as the timeout of a
    /// probe.
    fn ask(&mut self, host: &Host, control: &Server) -> Result<(), HostError> {
        for path in CONTROL_PATHS {
            let begin = Instant::now();
            let response = host.request(control, "GET", path)?;
            let took = if response.is_some() { begin.elapsed() } else { PROBE_TIMEOUT };
            let took_ms = took.as_secs_f64() * 1e3;
            self.control_slowest_ms = Some(self.control_slowest_ms.map_or(took_ms, |ms| ms.max(took_ms)));
        }
        Ok(())
    }

    fn note(&mut self, name: &str, usage: Usage) {
        let cpu_s = usage.cpu_s - self.before.get(name).copied().unwrap_or(0.0);
        let seconds = self.started.elapsed().as_secs_f64();
        let _ = writeln!(self.samples, "{seconds:.3},{name},{cpu_s:.2},{}", usage.memory_bytes);
        let used = self.used.entry(name.to_owned()).or_default();
        used.cpu_s = cpu_s.max(used.cpu_s);
        used.memory_bytes_max = used.memory_bytes_max.max(usage.memory_bytes);
        used.memory_bytes_end = usage.memory_bytes;
    }

    /// Takes the last sample of all parts after the end of the client, so all their work is
    /// included. The client's total CPU time is known only then.
    fn end(
        &mut self,
        running: &RunningTurn<'_>,
        client_cpu_s: f64,
    ) -> Result<BTreeMap<String, ResourceUse>, HostError> {
        self.used.entry("client".to_owned()).or_default().cpu_s = client_cpu_s;
        for (name, usage) in running.usage()? {
            self.note(&name, usage);
        }
        Ok(self.used.clone())
    }
}

fn deadline(client: &ClientSettings, amount: Amount) -> Duration {
    match amount {
        Amount::For(duration) => duration.saturating_add(END_GRACE).min(client.deadline),
        Amount::Requests(_) => client.deadline,
    }
}

/// The ports and cores of the processes of a turn.
struct Places<'a> {
    provider: ProcessPlace,
    services: Vec<(&'a str, ProcessPlace)>,
    proxies: Vec<ProcessPlace>,
}

impl<'a> Places<'a> {
    fn find(setup: &TurnSetup<'a>) -> Result<Self, TurnError> {
        let TurnSetup { hosts, scenario, .. } = setup;
        let place = |host: &Host, part: &str| {
            let core = setup.pinned.get(part).copied();
            Ok::<_, TurnError>(ProcessPlace { port: free_port(host)?, control_port: free_port(host)?, core })
        };
        let provider = place(&hosts.provider, "provider")?;
        let services = scenario.services.iter();
        let services = services.map(|name| Ok((name.as_str(), place(&hosts.proxy, "services")?)));
        let instances = if scenario.starts_proxy() { scenario.instances } else { 0 };
        Ok(Self {
            provider,
            services: services.collect::<Result<_, TurnError>>()?,
            proxies: (0..instances).map(|_| place(&hosts.proxy, "proxy")).collect::<Result<_, _>>()?,
        })
    }

    /// The values of placeholders that are the same for all processes.
    fn shared(&self, setup: &TurnSetup<'_>) -> Values {
        let hosts = setup.hosts;
        let mut shared = template::values([
            ("provider_address", bracketed(&hosts.provider.address)),
            ("provider_port", self.provider.port.to_string()),
            ("scheme", provider_scheme(setup).to_owned()),
        ]);
        let delay_s = setup.case.delay.map(|delay| delay.get().as_secs_f64().to_string());
        shared.extend(delay_s.map(|delay| ("delay_s".to_owned(), delay)));
        for (name, place) in &self.services {
            shared.insert(format!("{name}_address"), bracketed(&hosts.proxy.listen.to_string()));
            shared.insert(format!("{name}_port"), place.port.to_string());
        }
        for (instance, place) in (1..).zip(&self.proxies) {
            shared.insert(template::control_port_of(instance), place.control_port.to_string());
        }
        shared
    }
}

/// Scheme, host and port that the client requests from a proxy.
fn proxied_base(setup: &TurnSetup<'_>, provider: &ProcessPlace, proxy: &ProcessPlace) -> String {
    let (hosts, reach) = (setup.hosts, setup.scenario.reach);
    let named = |host: &Host, place: &ProcessPlace| authority(certified_name(host), place.port);
    match reach {
        Reach::Plain => format!("http://{}", authority(&hosts.proxy.address, proxy.port)),
        Reach::Tls => format!("https://{}", named(&hosts.proxy, proxy)),
        Reach::Tunnel => format!("{}://{}", provider_scheme(setup), named(&hosts.provider, provider)),
    }
}

/// The name of a machine in its certificate. On the lab's machine it is no address, so the client sends it
/// in the handshake.
fn certified_name(host: &Host) -> &str {
    if host.is_remote() { &host.address } else { "localhost" }
}

/// The scheme of the provider.
fn provider_scheme(setup: &TurnSetup<'_>) -> &'static str {
    if setup.experiment.provider.tls { "https" } else { "http" }
}

/// A turn whose processes are being started.
struct Starting<'a, 'b> {
    setup: &'a TurnSetup<'a>,
    interrupt: &'a Interrupt,
    files: &'b TurnFiles<'b>,
}

impl<'a> Starting<'a, '_> {
    /// Starts the services one after the other.
    fn services(&self, places: &[(&'a str, ProcessPlace)]) -> Result<Vec<RunningService<'a>>, TurnError> {
        let (hosts, experiment) = (self.setup.hosts, self.setup.experiment);
        let start = |(name, place): &(&'a str, ProcessPlace)| {
            let process = hosts.proxy.start(self.files.service(name, *place)?)?;
            let server = Server::at(hosts.proxy.listen, place.port);
            let expected = format!("listen on port {}", place.port);
            until_ready(&process, self.interrupt, &expected, || hosts.proxy.reaches(&server))?;
            let is_redis =
                experiment.services.get(*name).is_some_and(|service| service.kind == ServiceKind::Redis);
            Ok(RunningService { name, process, server, is_redis })
        };
        places.iter().map(start).collect()
    }

    /// Starts all instances of the proxy, and waits until each responds.
    fn proxies(&self, places: &[ProcessPlace]) -> Result<Vec<HostProcess<'a>>, TurnError> {
        let (host, scenario) = (&self.setup.hosts.proxy, self.setup.scenario);
        let path = &self.setup.experiment.provider.ready;
        let start = |(instance, place): (u32, &ProcessPlace)| {
            Ok(host.start(self.files.proxy(scenario, instance, *place)?)?)
        };
        let client = self.setup.experiment.client(self.setup.case, scenario);
        let is_asked = scenario.reach == Reach::Plain && client.protocol == Protocol::Http1;
        let proxies = (1..).zip(places).map(start).collect::<Result<Vec<_>, TurnError>>()?;
        for (process, place) in proxies.iter().zip(places) {
            let server = Server::at(host.listen, place.port);
            if is_asked {
                let is_ready = || Ok(responds(host, &server, path)?.is_ok());
                until_ready(process, self.interrupt, &format!("return 2xx for {path}"), is_ready)?;
            } else {
                // The warm-up shows whether it forwards.
                let expected = format!("listen on port {}", place.port);
                until_ready(process, self.interrupt, &expected, || host.reaches(&server))?;
            }
        }
        Ok(proxies)
    }

    /// Waits until the provider is ready, and passes the certificate of its authority to the proxy.
    fn until_provider_ready(&self, process: &HostProcess<'_>, server: &Server) -> Result<(), TurnError> {
        let hosts = self.setup.hosts;
        let (config, host) = (&self.setup.experiment.provider, &hosts.provider);
        let has_ca = config.arguments.iter().any(|word| word.contains("@{provider_ca}"));
        let directories = self.files.directories;
        let ca = directories.provider.join(PROVIDER_CA);
        // A program that is to speak HTTP/2 may speak nothing else.
        let is_asked = config.kind != ProviderKind::Command || self.setup.experiment.speaks_http1();
        let is_ready = || -> Result<bool, HostError> {
            if !config.tls && is_asked {
                return Ok(responds(host, server, &config.ready)?.is_ok());
            }
            Ok(host.reaches(server)? && (!has_ca || is_certificate(&host.read(&ca)?)))
        };
        until_ready(process, self.interrupt, &format!("return 2xx for {}", config.ready), is_ready)?;
        if has_ca && (host.is_remote() || hosts.proxy.is_remote()) {
            hosts.proxy.write(&directories.proxy.join(PROVIDER_CA), &host.read(&ca)?)?;
        }
        Ok(())
    }

    /// Fails unless a proxy that runs already forwards requests to the provider.
    fn check_external(&self, url: &ExternalUrl, fields: &[String]) -> Result<(), TurnError> {
        let ExternalUrl { host, port, path } = url;
        let server = Server { host: host.clone(), port: *port, fields: fields.to_vec() };
        let path = format!("{path}{}", self.setup.experiment.provider.ready);
        let response = responds(&self.setup.hosts.client, &server, &path)?;
        response.map_err(|status| {
            let received = status.map_or_else(|| "no response".into(), |status| format!("status {status}"));
            let to = fields.iter().fold(String::new(), |lines, field| lines + "\n    " + field);
            format!(
                "the proxy at {} does not forward to the provider: {received} for {path} with{to}\n\
                 It must run, and reach the provider under its address (`on.provider.address`).",
                url.base()
            )
            .into()
        })
    }
}

/// Sends a request from a host. Fails with the status code, if there is one, unless the response is 2xx.
fn responds(host: &Host, server: &Server, path: &str) -> Result<Result<(), Option<u16>>, HostError> {
    let status = host.request(server, "GET", path)?.map(|(status, _)| status);
    Ok(if matches!(status, Some(200..=299)) { Ok(()) } else { Err(status) })
}

/// Waits until a process does what is expected of it: `return 2xx for /`.
fn until_ready(
    part: &HostProcess<'_>,
    interrupt: &Interrupt,
    expected: &str,
    is_ready: impl Fn() -> Result<bool, HostError>,
) -> Result<(), TurnError> {
    let start = Instant::now();
    while !is_ready()? {
        if let Some(status) = part.ended()? {
            let message =
                format!("{} did not start ({status}); its output:\n{}", part.name(), part.last_lines());
            return Err(message.into());
        }
        if start.elapsed() > READY_DEADLINE {
            let seconds = READY_DEADLINE.as_secs();
            let message = format!(
                "{} did not {expected} within {seconds} s; its output:\n{}",
                part.name(),
                part.last_lines()
            );
            return Err(message.into());
        }
        interrupt.wait(LOOK_AGAIN)?;
    }
    Ok(())
}

/// Returns `true` if the content has a complete certificate.
fn is_certificate(content: &[u8]) -> bool {
    String::from_utf8_lossy(content).contains("-----END CERTIFICATE-----")
}

fn free_port(host: &Host) -> Result<u16, TurnError> {
    host.free_port()?.ok_or_else(|| format!("no free port on {}", host.listen).into())
}
