//! The providers: programs with a ledger in a file, one of them over TLS.

use std::process::Command;

use egret_tests::pki::Authority;
use egret_tests::process::{Directory, Process};
use rcgen::{CertificateParams, date_time_ymd};

use super::ledger::{Arrival, arrivals};
use super::network::{Network, PROVIDERS, Part};

/// The program of a provider.
const PROVIDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/chaos/provider.py");
/// The names of the providers in the config of the gateways, and their ports.
pub(crate) const NAMES: [&str; PROVIDERS] = ["plain", "secure"];
const PORTS: [u16; PROVIDERS] = [8080, 8443];
/// The provider that speaks TLS.
pub(crate) const SECURE: usize = 1;

/// The providers; killed when dropped.
#[derive(Debug)]
pub(crate) struct Providers {
    processes: Vec<Process>,
    authority: Authority,
    files: Directory,
}

impl Providers {
    /// Starts them.
    pub(crate) fn start(network: &Network) -> Self {
        let (authority, files) = (Authority::default(), Directory::default());
        files.write("ca.pem", authority.certificate());
        let mut providers = Self { processes: Vec::new(), authority, files };
        providers.certify(true);
        providers.processes = (0..PROVIDERS).map(|number| providers.launch(network, number)).collect();
        providers
    }

    /// The URLs of the providers, and the keys beside them in the config.
    pub(crate) fn configs(&self) -> [(String, String); PROVIDERS] {
        let addresses =
            [0, 1].map(|number| format!("{}:{}", Part::Provider(number).address(), PORTS[number]));
        let ca = format!("tls: {{ ca: {:?}, server_name: provider.test }}, ", self.files.join("ca.pem"));
        let [plain, secure] = addresses;
        [(format!("http://{plain}"), String::new()), (format!("https://{secure}"), ca)]
    }

    /// The process of a provider.
    pub(crate) fn process(&self, number: usize) -> &Process {
        &self.processes[number]
    }

    /// Kills a provider with SIGKILL.
    pub(crate) fn kill(&mut self, number: usize) {
        self.processes[number].signal("KILL");
        self.processes[number].until_ended();
    }

    /// Starts a provider again, with its ledger.
    pub(crate) fn restart(&mut self, network: &Network, number: usize) {
        self.processes[number] = self.launch(network, number);
    }

    /// Gives the provider another certificate, valid or expired, and lets it close unused connections.
    pub(crate) fn renew(&self, is_valid: bool) {
        self.certify(is_valid);
        self.processes[SECURE].signal("HUP");
    }

    fn certify(&self, is_valid: bool) {
        let expired = |params: &mut CertificateParams| {
            if !is_valid {
                params.not_before = date_time_ymd(2020, 1, 1);
                params.not_after = date_time_ymd(2020, 2, 1);
            }
        };
        let leaf = self.authority.leaf_with(&["provider.test"], expired);
        // One file, so that a connection never sees the key of one and the certificate of the other.
        self.files.write("provider.pem", leaf.certificate + &leaf.key);
    }

    fn launch(&self, network: &Network, number: usize) -> Process {
        let part = Part::Provider(number);
        let mut command: Command = network.machine(part).command("python3");
        command.args([PROVIDER, &part.address(), &PORTS[number].to_string()]).arg(self.ledger(number));
        if number == SECURE {
            let file = self.files.join("provider.pem");
            command.arg(&file).arg(&file);
        }
        let process = Process::printing(&mut command);
        process.until_printed("the provider listens", |lines| {
            lines.iter().any(|line| line == "listens").then_some(())
        });
        process
    }

    fn ledger(&self, number: usize) -> std::path::PathBuf {
        self.files.join(&format!("ledger-{number}"))
    }

    /// The calls that have come to all providers, in order.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        let ledgers =
            (0..PROVIDERS).map(|number| (number, std::fs::read_to_string(self.ledger(number)).unwrap()));
        let mut all: Vec<Arrival> = ledgers.flat_map(|(number, text)| arrivals(number, &text)).collect();
        all.sort_by_key(|arrival| arrival.came);
        all
    }
}
