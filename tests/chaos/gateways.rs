//! The gateways: each with a small disk and a clock of its own, and a config that changes twice a second.

use std::path::PathBuf;
use std::process::Command;

use egret_tests::egret::{Config, Egret};
use egret_tests::members::KEY;
use egret_tests::process::{Directory, run_checked};
use egret_tests::wait::far_from_now;

use super::network::{Network, Part};
use super::providers::{NAMES, Providers};
use super::store::Store;

/// Size of the disk of a gateway.
const DISK: &str = "6m";
/// Timeouts that no fault but a cut or a stopped peer reaches.
const TIMEOUTS: &str = "timeouts: { connect: 3s, tls: 3s, first_byte: 10s, total: 15s }";

/// Limits of the quotas, of which the clients ask for more.
pub(crate) const SLIDING: u64 = 20;
pub(crate) const BUCKET: u64 = 20;
pub(crate) const BURST: u64 = 10;
pub(crate) const FIXED: u64 = 60;
pub(crate) const FIXED_S: u64 = 5;
pub(crate) const CONCURRENT: u64 = 6;
pub(crate) const TOTAL: u64 = 500;

/// A gateway, which may be down.
#[derive(Debug)]
pub(crate) struct Gateway {
    number: usize,
    config: Config,
    egret: Egret,
    clock: Directory,
    /// Number of changes of the config.
    changes: u64,
    /// Panics of processes that have ended.
    panics: usize,
}

impl Gateway {
    /// Starts it.
    pub(crate) fn start(network: &Network, providers: &Providers, number: usize) -> Self {
        let clock = Directory::default();
        clock.write("step", "+0");
        let config = config(providers, number);
        let step = clock.join("step");
        let egret = Egret::start_with(&config, |command| {
            let disk = command.get_current_dir().unwrap().join("egret-data");
            std::fs::create_dir_all(&disk).unwrap();
            run_checked(
                Command::new("mount")
                    .args(["-t", "tmpfs", "-o", &format!("size={DISK},mode=0700"), "tmpfs"])
                    .arg(&disk),
            );
            prepare(command, &step, network, number);
        });
        Self { number, config, egret, clock, changes: 0, panics: 0 }
    }

    /// Its process.
    pub(crate) fn egret(&self) -> &Egret {
        &self.egret
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.egret.process().signal("KILL");
        self.egret.until_ended();
        self.panics += panics(&self.egret.log());
    }

    /// Panics so far.
    pub(crate) fn panics(&self) -> usize {
        self.panics + panics(&self.egret.log())
    }

    /// Starts it again, after it was killed.
    pub(crate) fn restart(&mut self, network: &Network) {
        let step = self.clock.join("step");
        let number = self.number;
        self.egret.start_again(&self.config, |command| prepare(command, &step, network, number));
    }

    /// Lets a new process take over.
    pub(crate) fn hand_over(&mut self, network: &Network) {
        let step = self.clock.join("step");
        let number = self.number;
        let mut old = self.egret.take_over_with(|command| prepare(command, &step, network, number));
        assert!(old.until_ended().success(), "the old process failed");
        self.panics += panics(&old.stderr());
    }

    /// Changes its config to another one, by a quota that nothing draws from.
    pub(crate) fn change(&mut self) {
        self.changes += 1;
        self.egret
            .rewrite(self.config.yaml().replace("limit: 777", &format!("limit: {}", 1_000 + self.changes)));
    }

    /// Sets its clock to this many seconds from the right time.
    pub(crate) fn step(&self, seconds: i64) {
        self.clock.write("step", format!("{seconds:+}"));
    }

    /// Fills its disk.
    pub(crate) fn fill(&self) {
        let file = std::fs::File::create(self.filler()).unwrap();
        let mut zeros = std::io::Read::take(std::io::repeat(0), u64::MAX);
        let full = std::io::copy(&mut zeros, &mut &file).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    /// Makes room on its disk.
    pub(crate) fn clear(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.disk().join("filler")
    }

    fn disk(&self) -> PathBuf {
        self.egret.directory().join("egret-data")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.disk()).status();
    }
}

/// Moves a gateway's command to its machine, and gives it its clock.
fn prepare(command: &mut Command, step: &std::path::Path, network: &Network, number: usize) {
    command.args(["--log-level", "info"]).env("EGRET_TEST_KEY", KEY);
    command.env("LD_PRELOAD", faketime());
    command.env("FAKETIME_TIMESTAMP_FILE", step).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command.env("FAKETIME_CACHE_DURATION", "1");
    network.machine(Part::Gateway(number)).enclose(command);
}

fn panics(log: &str) -> usize {
    log.lines().filter(|line| line.contains("panicked")).count()
}

/// The library of `faketime`, which the program has no option to change the time of meanwhile.
fn faketime() -> String {
    let files = run_checked(Command::new("dpkg-query").args(["--listfiles", "libfaketime"]));
    files.lines().find(|file| file.ends_with("/libfaketimeMT.so.1")).unwrap().to_owned()
}

fn config(providers: &Providers, number: usize) -> Config {
    let store = Store::config();
    let quota = |name: &str, keys: String| format!("  {name}: {{ {keys}, store: redis }}\n");
    let quotas = [
        quota("sliding", format!("limit: {SLIDING}, window: 1s")),
        quota("bucket", format!("kind: token-bucket, limit: {BUCKET}, window: 1s, burst: {BURST}")),
        quota("fixed", format!("kind: fixed, limit: {FIXED}, window: {FIXED_S}s")),
        quota("concurrent", format!("kind: concurrency, limit: {CONCURRENT}")),
        quota(
            "total",
            format!("kind: calendar, period: day, limit: {TOTAL}, renews: {{ time: '{}' }}", far_from_now()),
        ),
    ];
    let flows = ["sliding", "bucket", "fixed", "concurrent", "total"].map(|name| {
        format!("  - {{ name: {name}, match: {{ path: '/{name}/*' }}, remedies: [limit: {name}] }}\n")
    });
    let retried = ["plain", "secure"].map(|name| {
        let retry = "retry: { attempts: 3, on: [connect, reset, timeout, 5xx], backoff: { base: 20ms, max: 200ms }, budget: { ratio: 1.0, min_per_second: 50 } }";
        format!("  - {{ name: {name}, match: {{ path: '/{name}/*' }}, remedies: [{retry}] }}\n")
    });
    let rest = format!(
        "cluster: {{ name: chaos, member: gateway-{number}, key: '${{env:EGRET_TEST_KEY}}', redis: {store} }}\n\
         exporters: {{ archive: {{ type: har, directory: ./egret-data/har, rotate: 256KiB, keep: 1MiB }} }}\n\
         quotas:\n  unused: {{ limit: 777, window: 1s }}\n{}flows:\n{}{}  \
         - {{ name: all, diagnoses: [har: {{ export: archive }}, metrics: {{}}, discovery: {{ keep: true }}] }}\n",
        quotas.concat(),
        retried.concat(),
        flows.concat(),
    );
    let address = format!("'{}:8000'", Part::Gateway(number).address());
    let config = Config::default().listen([&address]).gateway(TIMEOUTS);
    let pairs = NAMES.into_iter().zip(providers.configs());
    let config = pairs.fold(config, |config, (name, (url, keys))| {
        config.provider_with(name, url, &format!("{keys}pool: {{ idle_timeout: 10s }}"))
    });
    config.flows(rest)
}
