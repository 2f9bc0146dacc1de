//! The faults as they are played: begun and ended.

use super::network::{Carried, Part};
use super::plan::Fault;
use super::store::Store;
use super::world::World;

/// A fault that has begun, with what its end needs.
#[derive(Debug)]
pub(crate) struct Begun {
    fault: Fault,
    /// The server that was the master.
    master: Option<usize>,
}

impl Begun {
    /// Begins a fault.
    pub(crate) fn begin(fault: &Fault, world: &World) -> Self {
        let mut master = None;
        match fault {
            Fault::Everywhere(carried) => world.network.carry(&pairs(|_, _| true), *carried),
            Fault::Apart(one, other) => world.network.carry(&[(*one, *other)], Carried::Cut),
            Fault::Alone(part) => {
                world.network.carry(&pairs(|one, other| one == *part || other == *part), Carried::Cut);
            }
            Fault::Killed(part) => kill(*part, world),
            Fault::MasterKilled => {
                master = Some(Store::master().unwrap());
                kill(Part::Store(master.unwrap()), world);
            }
            Fault::Stopped(part) => signal(*part, "STOP", world),
            Fault::Full(number) => world.gateways[*number].lock().unwrap().fill(),
            Fault::Stepped(number, seconds) => world.gateways[*number].lock().unwrap().step(*seconds),
            Fault::Expired => world.providers.lock().unwrap().renew(false),
            Fault::HandedOver(number) => world.gateways[*number].lock().unwrap().hand_over(&world.network),
        }
        Self { fault: fault.clone(), master }
    }

    /// Ends it.
    pub(crate) fn end(self, world: &World) {
        match self.fault {
            Fault::Everywhere(_) | Fault::Apart(..) | Fault::Alone(_) => world.network.heal(),
            Fault::Killed(part) => restart(part, world),
            Fault::MasterKilled => restart(Part::Store(self.master.unwrap()), world),
            Fault::Stopped(part) => signal(part, "CONT", world),
            Fault::Full(number) => world.gateways[number].lock().unwrap().clear(),
            Fault::Stepped(number, _) => world.gateways[number].lock().unwrap().step(0),
            Fault::Expired => world.providers.lock().unwrap().renew(true),
            Fault::HandedOver(_) => {}
        }
    }
}

/// The pairs of machines that are chosen.
fn pairs(is_chosen: impl Fn(Part, Part) -> bool) -> Vec<(Part, Part)> {
    let all = Part::all();
    let each = all.iter().enumerate().flat_map(|(at, one)| all[at + 1..].iter().map(|other| (*one, *other)));
    each.filter(|(one, other)| is_chosen(*one, *other)).collect()
}

fn kill(part: Part, world: &World) {
    match part {
        Part::Gateway(number) => world.gateways[number].lock().unwrap().kill(),
        Part::Store(number) => world.store.lock().unwrap().kill(number),
        Part::Provider(number) => world.providers.lock().unwrap().kill(number),
        Part::Clients => panic!("the clients keep the ledger"),
    }
}

fn restart(part: Part, world: &World) {
    match part {
        Part::Gateway(number) => world.gateways[number].lock().unwrap().restart(&world.network),
        Part::Store(number) => world.store.lock().unwrap().restart(&world.network, number),
        Part::Provider(number) => world.providers.lock().unwrap().restart(&world.network, number),
        Part::Clients => panic!("the clients keep the ledger"),
    }
}

fn signal(part: Part, name: &str, world: &World) {
    match part {
        Part::Gateway(number) => world.gateways[number].lock().unwrap().egret().process().signal(name),
        Part::Store(number) => world.store.lock().unwrap().process(number).signal(name),
        Part::Provider(number) => world.providers.lock().unwrap().process(number).signal(name),
        Part::Clients => panic!("the clients keep the ledger"),
    }
}
