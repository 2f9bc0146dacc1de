//! One turn: starts provider and proxy, warms up, measures, and stops them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use egret_measure::statistics::real;

use super::progress::Progress;
use super::setup::TurnSetup;
use crate::client::ClientTask;
use crate::client_settings::{Amount, ClientKind, ClientSettings};
use crate::counters::{self, CountersError, ProviderCounters};
use crate::figures::Figures;
use crate::interrupt::{Interrupt, Interrupted};
use crate::local_http::{self, Probe};
use crate::process::{self, Launch, MeasuredProcess, Usage, last_lines};
use crate::results::{ProcessFigures, ResultsError, Turn, make_directory, write_whole};
use crate::template::Values;
use crate::turn_files::{self, StartProblem, TurnFiles};
use crate::{clock, machine};

/// Maximum time for a process to become ready.
const READY_DEADLINE: Duration = Duration::from_secs(20);

/// Interval between checks for readiness or exit of a process.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Interval between samples of CPU and memory. Reading memory maps costs the measured process some
/// microseconds.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Additional time for a client with a fixed duration to end.
const END_GRACE: Duration = Duration::from_secs(30);

/// File in a turn's folder for the certificate of the provider's authority.
const PROVIDER_CA: &str = "provider-ca.pem";

/// Maximum number of attempts with a client that hangs: siege 4.0.7 occasionally does.
const TRIES_MAX: u32 = 3;

/// The reason why a turn did not complete.
#[derive(Debug)]
pub(crate) enum TurnError {
    /// A process failed. The text names it and includes its output.
    Failed(String),
    /// The results cannot be written.
    Results(ResultsError),
    /// The run was interrupted.
    Interrupted,
}

impl From<Interrupted> for TurnError {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

impl From<StartProblem> for TurnError {
    fn from(problem: StartProblem) -> Self {
        Self::Failed(problem.to_string())
    }
}

impl From<CountersError> for TurnError {
    fn from(error: CountersError) -> Self {
        Self::Failed(error.to_string())
    }
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
                running.url
            )
            .into());
        }
    }
    let started = clock::iso(SystemTime::now());
    let measured = running.run(&client, client.amount, "measured", progress)?;
    let counted = running.counted()?;
    let Figures { failed, requests, .. } = measured.figures;
    if requests == 0 || failed > requests.saturating_mul(2) {
        return Err(format!("{}: {requests} requests completed and {failed} failed", running.url).into());
    }
    write_whole(&setup.directory.join("samples.csv"), &measured.samples).map_err(TurnError::Results)?;
    let load_average = machine::load_average();
    drop(running);
    tidy(setup.directory)?;
    Ok(Turn {
        round: setup.round,
        case: setup.case.name.clone(),
        scenario: setup.scenario.name.clone(),
        started,
        figures: measured.figures,
        processes: measured.processes,
        counted,
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
    for name in ["provider", "proxy", "warm-up", "measured"] {
        let path = directory.join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(|error| failed(&path, error))?;
        }
    }
    Ok(())
}

/// Provider and proxy, started and ready.
struct RunningTurn<'a> {
    setup: &'a TurnSetup<'a>,
    interrupt: &'a Interrupt,
    /// Declared before the provider, so it is dropped first.
    proxy: Option<MeasuredProcess>,
    provider: MeasuredProcess,
    /// Port of the provider's counters, if it has them.
    counters: Option<u16>,
    url: String,
}

/// The results of a run of the client.
struct Measured {
    figures: Figures,
    processes: BTreeMap<String, ProcessFigures>,
    samples: String,
}

impl<'a> RunningTurn<'a> {
    fn start(setup: &'a TurnSetup<'a>, interrupt: &'a Interrupt) -> Result<Self, TurnError> {
        let [provider_port, proxy_port, control_port] = [free_port()?, free_port()?, free_port()?];
        let config = &setup.experiment.provider;
        let scheme = if config.tls { "https" } else { "http" };
        let delay_s = setup.case.delay.map(|delay| delay.get().as_secs_f64().to_string());
        let mut shared = Values::from([
            ("provider_port", provider_port.to_string()),
            ("provider_ca", setup.directory.join(PROVIDER_CA).display().to_string()),
            ("control_port", control_port.to_string()),
            ("scheme", scheme.to_owned()),
            ("here", setup.here.display().to_string()),
            ("egret", setup.egret.display().to_string()),
            ("user", user()),
        ]);
        shared.extend(delay_s.map(|delay| ("delay_s", delay)));
        let path = crate::template::fill(setup.experiment.path_of(setup.case), &shared)
            .map_err(|unknown| format!("`@{{{}}}` in the path has no value", unknown.name))?;
        let (experiment, here, configs) = (setup.experiment, setup.here, setup.configs);
        let files = TurnFiles { experiment, here, configs, directory: setup.directory, shared };
        let core = |part: &str| setup.pinned.get(part).copied();
        let mut provider = start(&files.provider(provider_port, core("provider"))?)?;
        let ready = &config.ready;
        let responds = |port: u16| matches!(local_http::probe(port, ready), Probe::Status(200..=299));
        let ca = config
            .arguments
            .iter()
            .any(|word| word.contains("@{provider_ca}"))
            .then(|| setup.directory.join(PROVIDER_CA));
        let speaks_tls = || local_http::listens(provider_port) && ca.as_deref().is_none_or(is_certificate);
        let is_there = || if config.tls { speaks_tls() } else { responds(provider_port) };
        until_ready(&mut provider, interrupt, ready, is_there)?;
        let (mut port, mut scheme) = (provider_port, scheme);
        let mut proxy = None;
        if let Some(launch) = files.proxy(setup.scenario, proxy_port, core("proxy"))? {
            let mut part = start(&launch)?;
            until_ready(&mut part, interrupt, ready, || responds(proxy_port))?;
            (port, scheme, proxy) = (proxy_port, "http", Some(part));
        }
        let counters = config.counts().then_some(provider_port);
        let url = format!("{scheme}://127.0.0.1:{port}{path}");
        Ok(Self { setup, interrupt, proxy, provider, counters, url })
    }

    /// Reads the provider's counters since the last start of the client.
    fn counted(&self) -> Result<Option<ProviderCounters>, TurnError> {
        Ok(self.counters.map(counters::read).transpose()?)
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
        let directory = self.setup.directory.join(name);
        if directory.exists() {
            // If this fails, the next line reports it.
            let _ = std::fs::remove_dir_all(&directory);
        }
        make_directory(&directory).map_err(TurnError::Results)?;
        let launch = self.client(client, amount, &directory)?;
        if let Some(port) = self.counters {
            counters::reset(port)?;
        }
        let mut watch = ResourceSampler::start(self);
        let ended_before_s = process::ended_cpu_s();
        let mut part = start(&launch)?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = part.ended() {
                break status;
            }
            self.check()?;
            if start.elapsed() > deadline(client, amount) {
                return Ok(None);
            }
            watch.sample(self, &part);
            progress.tick(&format!("{name}, {} s", start.elapsed().as_secs()));
            self.interrupt.wait(LOOK_AGAIN)?;
        };
        let used = watch.end(self, process::ended_cpu_s() - ended_before_s);
        self.check()?;
        let printed = std::fs::read(&launch.stdout).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        let figures = client.kind.figures(&directory, &printed);
        let figures = figures.map_err(|why| {
            format!("{}: {why} ({status}); its output:\n{}", client.kind, last_lines(&launch.stderr))
        })?;
        let processes = used.into_iter().map(|(part, used)| (part, used.figures(figures.requests))).collect();
        Ok(Some(Measured { figures, processes, samples: watch.samples }))
    }

    fn client(&self, client: &ClientSettings, amount: Amount, directory: &Path) -> Result<Launch, TurnError> {
        let task = ClientTask { client, amount, url: &self.url, directory };
        let path = directory.join("client.err");
        let unwritten = |error| TurnError::Results(ResultsError::Io { path: directory.to_owned(), error });
        let program = match client.kind.program() {
            Some(name) => {
                turn_files::locate(name, self.setup.here).ok_or_else(|| format!("{name} is not installed"))?
            }
            None => self.setup.egret.to_owned(),
        };
        Ok(Launch {
            name: format!("the client {}", client.kind),
            program,
            arguments: client.kind.arguments(&task).map_err(unwritten)?,
            directory: directory.to_owned(),
            home: directory.to_owned(),
            stdout: directory.join("client.out"),
            stderr: path,
            core: self.setup.pinned.get("client").copied(),
        })
    }

    /// Fails if the provider or the proxy has ended.
    fn check(&mut self) -> Result<(), TurnError> {
        for part in [Some(&mut self.provider), self.proxy.as_mut()].into_iter().flatten() {
            if let Some(status) = part.ended() {
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

    fn parts(&self) -> impl Iterator<Item = (&'static str, &MeasuredProcess)> {
        [Some(("provider", &self.provider)), self.proxy.as_ref().map(|proxy| ("proxy", proxy))]
            .into_iter()
            .flatten()
    }
}

/// Samples the resources of the processes while the client runs.
struct ResourceSampler {
    started: Instant,
    sampled: Instant,
    before: BTreeMap<&'static str, f64>,
    used: BTreeMap<String, ResourceUse>,
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
    fn start(running: &RunningTurn<'_>) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            sampled: now,
            before: running.parts().map(|(name, part)| (name, part.cpu_s())).collect(),
            used: BTreeMap::new(),
            samples: "seconds,part,cpu_s,memory_bytes\n".into(),
        }
    }

    fn sample(&mut self, running: &RunningTurn<'_>, client: &MeasuredProcess) {
        if self.sampled.elapsed() < SAMPLE_EVERY {
            return;
        }
        self.sampled = Instant::now();
        for (name, part) in running.parts().chain([("client", client)]) {
            self.note(name, part.usage());
        }
    }

    fn note(&mut self, name: &'static str, usage: Usage) {
        let cpu_s = usage.cpu_s - self.before.get(name).copied().unwrap_or(0.0);
        let seconds = self.started.elapsed().as_secs_f64();
        let _ = writeln!(self.samples, "{seconds:.3},{name},{cpu_s:.2},{}", usage.memory_bytes);
        let used = self.used.entry(name.to_owned()).or_default();
        used.cpu_s = cpu_s.max(used.cpu_s);
        used.memory_bytes_max = used.memory_bytes_max.max(usage.memory_bytes);
        used.memory_bytes_end = usage.memory_bytes;
    }

    /// Takes the last sample of provider and proxy after the end of the client, so all their work is
    /// included. The client's total CPU time is known only then.
    fn end(&mut self, running: &RunningTurn<'_>, client_cpu_s: f64) -> BTreeMap<String, ResourceUse> {
        self.used.entry("client".to_owned()).or_default().cpu_s = client_cpu_s;
        for (name, part) in running.parts() {
            self.note(name, part.usage());
        }
        self.used.clone()
    }
}

fn deadline(client: &ClientSettings, amount: Amount) -> Duration {
    match amount {
        Amount::For(duration) => duration.saturating_add(END_GRACE).min(client.deadline),
        Amount::Requests(_) => client.deadline,
    }
}

fn start(launch: &Launch) -> Result<MeasuredProcess, TurnError> {
    MeasuredProcess::start(launch).map_err(|error| {
        format!("{} cannot be started: {}: {error}", launch.name, launch.program.display()).into()
    })
}

fn until_ready(
    part: &mut MeasuredProcess,
    interrupt: &Interrupt,
    path: &str,
    is_there: impl Fn() -> bool,
) -> Result<(), TurnError> {
    let start = Instant::now();
    while !is_there() {
        if let Some(status) = part.ended() {
            let message =
                format!("{} did not start ({status}); its output:\n{}", part.name(), part.last_lines());
            return Err(message.into());
        }
        if start.elapsed() > READY_DEADLINE {
            let seconds = READY_DEADLINE.as_secs();
            let message = format!(
                "{} did not return 2xx for {path} within {seconds} s; its output:\n{}",
                part.name(),
                part.last_lines()
            );
            return Err(message.into());
        }
        interrupt.wait(LOOK_AGAIN)?;
    }
    Ok(())
}

/// Returns `true` if the file contains a complete certificate.
fn is_certificate(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.contains("-----END CERTIFICATE-----"))
}

fn free_port() -> Result<u16, TurnError> {
    local_http::free_port().ok_or_else(|| "no free port".to_owned().into())
}

/// The user who runs the experiment. An nginx started by root would otherwise run its workers as a user who
/// may not read the results.
fn user() -> String {
    let id = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| "root".into())
}
