//! The plan of faults, a function of the seed: decks with each kind of fault once, in random order.

use std::time::Duration;

use egret_tests::random::Random;

use super::network::{Carried, GATEWAYS, PROVIDERS, Part, STORES};

/// A fault.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// Packets between all machines are carried badly.
    Everywhere(Carried),
    /// Nothing passes between these.
    Apart(Part, Part),
    /// Nothing passes between this machine and all others.
    Alone(Part),
    /// The process is killed with SIGKILL, and started again at the end.
    Killed(Part),
    /// The same with the store's master; the sentinels replace it if it stays away for long enough.
    MasterKilled,
    /// The process is stopped with SIGSTOP.
    Stopped(Part),
    /// The disk of the gateway is full.
    Full(usize),
    /// The clock of the gateway shows so many seconds more.
    Stepped(usize, i64),
    /// The certificate of the provider has expired.
    Expired,
    /// A new process takes over from the gateway.
    HandedOver(usize),
}

/// A fault and its length.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
}

/// Draws a deck of faults.
pub(crate) fn deck(random: &mut Random) -> Vec<Planned> {
    let mut gateway = {
        let mut random = random.clone();
        move || random.below(GATEWAYS)
    };
    random.draw();
    let short = |random: &mut Random| Duration::from_millis(1_000 + random.below(2_000) as u64);
    let steps = [-7_000, -90, -5, 5, 90, 7_000];
    let store = Part::Store(random.below(STORES));
    let provider = Part::Provider(random.below(PROVIDERS));
    let faults = [
        Fault::Everywhere(Carried::Lost(2 + u8::try_from(random.below(7)).unwrap())),
        Fault::Everywhere(Carried::Delayed(5 + u16::try_from(random.below(60)).unwrap())),
        Fault::Everywhere(Carried::Doubled(5 + u8::try_from(random.below(40)).unwrap())),
        Fault::Everywhere(Carried::Short(576 + u16::try_from(random.below(600)).unwrap())),
        Fault::Apart(Part::Gateway(gateway()), provider),
        Fault::Apart(Part::Gateway(gateway()), store),
        Fault::Apart(Part::Store(0), Part::Store(1)),
        Fault::Alone(Part::Gateway(gateway())),
        Fault::Alone(store),
        Fault::Killed(Part::Gateway(gateway())),
        Fault::Killed(Part::Store(random.below(STORES))),
        Fault::Killed(provider),
        Fault::Stopped(Part::Gateway(gateway())),
        Fault::Stopped(Part::Store(random.below(STORES))),
        Fault::Stopped(Part::Provider(random.below(PROVIDERS))),
        Fault::Full(gateway()),
        Fault::Stepped(gateway(), steps[random.below(steps.len())]),
        Fault::Expired,
        Fault::HandedOver(gateway()),
        Fault::MasterKilled,
    ];
    let mut deck: Vec<Planned> =
        faults.into_iter().map(|fault| Planned { fault, lasts: short(random) }).collect();
    for at in (1..deck.len()).rev() {
        deck.swap(at, random.below(at + 1));
    }
    for planned in &mut deck {
        // In one case of three longer than the store needs to replace a master.
        if planned.fault == Fault::MasterKilled || matches!(planned.fault, Fault::Alone(Part::Store(_))) {
            planned.lasts += Duration::from_secs(if random.once_in(3) { 18 } else { 0 });
        }
    }
    deck
}

impl Fault {
    /// `true` if calls through this gateway to this provider may fail meanwhile, or responses be lost.
    pub(crate) fn excuses(&self, gateway: usize, provider: usize) -> bool {
        let ends = [Part::Gateway(gateway), Part::Provider(provider), Part::Clients];
        match self {
            Self::Alone(part) | Self::Killed(part) | Self::Stopped(part) => ends.contains(part),
            Self::Apart(one, other) => ends.contains(one) && ends.contains(other),
            Self::Everywhere(_)
            | Self::MasterKilled
            | Self::Full(_)
            | Self::Stepped(..)
            | Self::Expired
            | Self::HandedOver(_) => false,
        }
    }
}
