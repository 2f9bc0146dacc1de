//! The machines, each a network namespace, and the switch between them.
//!
//! Kernels without `sch_netem` cannot delay packets. So each machine has a TUN device whose other end is a
//! program of this suite, `switch.py`: it loses, delays, doubles, reorders, refuses and forwards packets.

use std::process::Command;
use std::sync::Mutex;

use egret_tests::namespace::Namespace;
use egret_tests::process::{Process, run_checked};
use serde_json::{Value, json};

/// The program of the switch.
const SWITCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/chaos/switch.py");

/// A machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    /// The one on which this test runs.
    Clients,
    Gateway(usize),
    /// A server of the store, with a sentinel beside it. The last one has a sentinel alone.
    Store(usize),
    /// The first speaks HTTP, the second HTTPS.
    Provider(usize),
}

pub(crate) const GATEWAYS: usize = 3;
pub(crate) const STORES: usize = 3;
pub(crate) const PROVIDERS: usize = 2;

impl Part {
    /// All machines.
    pub(crate) fn all() -> Vec<Self> {
        let gateways = (0..GATEWAYS).map(Self::Gateway);
        let rest = (0..STORES).map(Self::Store).chain((0..PROVIDERS).map(Self::Provider));
        std::iter::once(Self::Clients).chain(gateways).chain(rest).collect()
    }

    /// Its address.
    pub(crate) fn address(self) -> String {
        let last = match self {
            Self::Clients => 1,
            Self::Gateway(number) => 11 + number,
            Self::Store(number) => 21 + number,
            Self::Provider(number) => 31 + number,
        };
        format!("10.99.0.{last}")
    }

    /// Its device.
    fn device(self) -> String {
        format!("chaos{}", self.address().rsplit('.').next().unwrap_or_default())
    }
}

/// The way in which packets from one machine to another are carried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Carried {
    /// So many percent are lost.
    Lost(u8),
    /// Delayed by so many milliseconds, and by a random time of up to as many more, which changes the order.
    Delayed(u16),
    /// So many percent arrive twice, some of them before packets that were sent earlier.
    Doubled(u8),
    /// None arrives.
    Cut,
    /// None that is longer than so many bytes arrives; a router tells the sender.
    Short(u16),
}

impl Carried {
    fn rule(self, from: Part, to: Part) -> Value {
        let mut rule = match self {
            Self::Lost(percent) => json!({ "loss": f64::from(percent) / 100.0 }),
            Self::Delayed(ms) => json!({ "delay": f64::from(ms) / 1e3, "jitter": f64::from(ms) / 1e3 }),
            Self::Doubled(percent) => {
                json!({ "duplicate": f64::from(percent) / 100.0, "delay": 0.01, "reorder": 0.3 })
            }
            Self::Cut => json!({ "cut": true }),
            Self::Short(bytes) => json!({ "mtu": bytes }),
        };
        rule["from"] = from.address().into();
        rule["to"] = to.address().into();
        rule
    }
}

/// The machines and their switch; all vanish when this is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    /// Ends before the namespaces.
    switch: Mutex<Switch>,
    machines: Vec<(Part, Namespace)>,
}

#[derive(Debug)]
struct Switch {
    process: Process,
    /// Number of times that the rules were set.
    set: usize,
}

impl Network {
    /// Creates the machines. This process must have a network namespace of its own: it becomes a machine,
    /// too.
    pub(crate) fn start() -> Self {
        let devices = std::fs::read_to_string("/proc/net/dev").unwrap();
        assert_eq!(devices.lines().count(), 3, "the network is in use: run this by `make chaos`:\n{devices}");
        let names = Part::all().into_iter().map(|part| format!("{}={}", part.device(), part.address()));
        let process = Process::printing(Command::new("python3").arg(SWITCH).args(names));
        process.until_printed("the switch is ready", |lines| {
            lines.iter().any(|line| line == "ready").then_some(())
        });
        run_checked(Command::new("ip").args(["link", "set", "lo", "up"]));
        let machine = |part: &Part| {
            let namespace = Namespace::create();
            ip(&format!("link set {} netns {}", part.device(), namespace.id()));
            (*part, namespace)
        };
        let machines: Vec<_> = Part::all()[1..].iter().map(machine).collect();
        for words in addressed(Part::Clients) {
            ip(&words);
        }
        for (part, namespace) in &machines {
            addressed(*part).iter().for_each(|words| namespace.ip(words));
        }
        Self { switch: Mutex::new(Switch { process, set: 0 }), machines }
    }

    /// The machine of a part other than the clients.
    pub(crate) fn machine(&self, part: Part) -> &Namespace {
        self.machines.iter().find_map(|(each, machine)| (*each == part).then_some(machine)).unwrap()
    }

    /// Carries packets between these pairs in this way, in both directions, and all others as they are.
    pub(crate) fn carry(&self, pairs: &[(Part, Part)], carried: Carried) {
        let both = pairs.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
        self.set(both.map(|(from, to)| carried.rule(from, to)).collect());
    }

    /// Carries all packets as they are.
    pub(crate) fn heal(&self) {
        self.set(Vec::new());
    }

    fn set(&self, rules: Vec<Value>) {
        let mut switch = self.switch.lock().unwrap();
        switch.set += 1;
        switch.process.enter(&Value::from(rules).to_string());
        let set = switch.set;
        switch.process.until_printed("the rules are set", |lines| {
            (lines.iter().filter(|line| *line == "done").count() >= set).then_some(())
        });
    }
}

/// The commands of `ip` that give a machine its address.
fn addressed(part: Part) -> [String; 2] {
    let device = part.device();
    [format!("addr add {}/24 dev {device}", part.address()), format!("link set {device} up mtu 1500")]
}

fn ip(words: &str) {
    run_checked(Command::new("ip").args(words.split(' ')));
}
