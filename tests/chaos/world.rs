//! All parts together.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;

use egret_tests::process::run;

use super::callers::Callers;
use super::gateways::Gateway;
use super::lateness::Lateness;
use super::network::{GATEWAYS, Network, Part};
use super::providers::Providers;
use super::store::Store;

/// The directory of what was noted about the gateways.
const OUT: &str = "EGRET_CHAOS_OUT";

/// The parts. They end in this order, and the machines last.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) gateways: Vec<Mutex<Gateway>>,
    pub(crate) providers: Mutex<Providers>,
    pub(crate) store: Mutex<Store>,
    pub(crate) callers: Callers,
    pub(crate) lateness: Lateness,
    pub(crate) network: Network,
    out: PathBuf,
}

impl World {
    /// Starts all parts.
    pub(crate) fn start() -> Self {
        let out = std::env::var_os(OUT)
            .map_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../results/chaos").into(), PathBuf::from);
        std::fs::create_dir_all(&out).unwrap();
        let network = Network::start();
        let (store, providers) = (Store::start(&network), Providers::start(&network));
        let gateways =
            (0..GATEWAYS).map(|number| Mutex::new(Gateway::start(&network, &providers, number))).collect();
        Self {
            gateways,
            providers: Mutex::new(providers),
            store: Mutex::new(store),
            callers: Callers::default(),
            lateness: Lateness::default(),
            network,
            out,
        }
    }

    /// Notes the units that a gateway holds, and at the end its log.
    pub(crate) fn note(&self, number: usize, when: &str, is_end: bool) {
        let gateway = self.gateways[number].lock().unwrap();
        let url = format!("http://{}/api/v1/cluster", gateway.egret().control());
        let mut curl = self.network.machine(Part::Gateway(number)).command("curl");
        let status = run(curl.args(["--silent", "--max-time", "5", &url])).stdout;
        let log = if is_end { gateway.egret().log() } else { String::new() };
        let file = self.out.join(format!("gateway-{number}.txt"));
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "{when}: {}\n{log}", String::from_utf8_lossy(&status)).unwrap();
    }
}
