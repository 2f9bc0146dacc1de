//! A process of the gateway: its workers and its resolver, which the world turns, and its end.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use egret_clock::Moment;
use egret_diagnosis::TrafficFilter;
use egret_gateway::{Gateway, HAND_OVER_MAX, HandedState, Held, Pulse, Stopping};
use egret_kernel::outside;
use egret_net::event_loop::simulated::{LoopState, SteppedLoop};
use egret_net::os::kernel::TcpListener;
use egret_quota::QuotaSnapshot;

use crate::config::Config;
use crate::disks::Disks;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::scenario::{Dice, IDLE_S, Scenario};

/// Number of turns in which the diagnoses end.
const TURNS_TO_END: usize = 100;

/// A worker of the gateway.
struct Worker {
    /// `None` once it has ended.
    stepped: Option<SteppedLoop>,
    is_busy: bool,
    /// The end of its wait.
    wakes: Option<Moment>,
    /// Number of its tasks when there is nothing to do.
    tasks: usize,
}

/// The progress of its end.
enum Stage {
    Serves,
    /// The acceptors stop, before a drain.
    Stops(Stopping),
    /// The acceptors stop, before a hand-over.
    Leaves(Stopping),
    /// The workers handle what they were told before the hand-over, until this time at most.
    Handles(Pulse, Moment),
    Drains,
}

/// A process of the gateway.
pub struct Process {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// Its parts that use the disk.
    pub disks: Disks,
    workers: Vec<Worker>,
    names: Names,
    stage: Stage,
}

impl Process {
    /// Starts a process that does not serve clients yet.
    pub fn start(
        config: &Config,
        disks: Disks,
        inherited: &[TcpListener],
        scenario: &Scenario,
        dice: &mut Dice,
        now: Moment,
    ) -> Result<Self, String> {
        let (dns, trouble) = (&config.gateway.dns, scenario.trouble.dns);
        let (names, resolver) =
            Names::start(dns, dice.split(), trouble, scenario.ttl, now).map_err(|error| error.to_string())?;
        let (gateway, loops) = Gateway::simulated(config.parts(&disks, inherited), resolver)
            .map_err(|error| error.to_string())?;
        gateway.watch_traffic(scenario.is_watched);
        let worker = |stepped| Worker { stepped: Some(stepped), is_busy: true, wakes: None, tasks: 0 };
        let workers = loops.into_iter().map(worker).collect();
        let mut process = Self { gateway, disks, workers, names, stage: Stage::Serves };
        process.disks.open_caches(&process.gateway);
        Ok(process)
    }

    /// Number of its workers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Notes the present number of tasks as that of a process with nothing to do.
    pub fn note_tasks(&mut self) {
        for worker in &mut self.workers {
            worker.tasks = worker.stepped.as_ref().map_or(0, SteppedLoop::tasks);
        }
    }

    /// Number of the tasks of each worker with nothing to do.
    pub fn idle_tasks(&self) -> Vec<usize> {
        self.workers.iter().map(|worker| worker.tasks).collect()
    }

    /// Expects as many tasks as another process has with nothing to do.
    pub fn expect_tasks(&mut self, of_other: &[usize]) {
        for (worker, tasks) in self.workers.iter_mut().zip(of_other) {
            worker.tasks = *tasks;
        }
    }

    /// Applies the config again.
    pub fn reload(&mut self, config: &Config) -> Result<(), String> {
        self.gateway.reload(config.parts(&self.disks, &[])).map_err(|error| error.to_string())?;
        self.disks.open_caches(&self.gateway);
        Ok(())
    }

    /// Returns `true` if this worker is to have a turn.
    pub fn is_due(&self, worker: usize, now: Moment) -> bool {
        let worker = &self.workers[worker];
        let Some(stepped) = &worker.stepped else { return false };
        let is_woken = || worker.wakes.is_some_and(|wakes| wakes <= now);
        worker.is_busy || is_woken() || outside::has_news(stepped.poller())
    }

    /// The first time at which a worker wakes by itself.
    pub fn wakes(&self) -> Option<Moment> {
        let live = self.workers.iter().filter(|worker| worker.stepped.is_some());
        live.filter_map(|worker| worker.wakes).min()
    }

    /// Gives a worker a turn.
    pub fn turn(&mut self, number: usize, now: Moment) {
        let worker = &mut self.workers[number];
        let Some(stepped) = &mut worker.stepped else { return };
        let turn = stepped.turn();
        worker.is_busy = turn == LoopState::Busy;
        // The system rounds up to whole milliseconds.
        let limit = outside::wait_limit_ns(stepped.poller()).map(|ns| ns.div_ceil(1_000_000) * 1_000_000);
        worker.wakes = limit.map(|ns| now + Duration::from_nanos(ns));
        if turn == LoopState::Ended {
            worker.stepped = None;
        }
    }

    /// Its state after a turn of a worker, in a line.
    pub fn describe(&self, number: usize) -> String {
        let worker = &self.workers[number];
        let quotas = self.gateway.flows(1).quotas;
        let group = |quota: &QuotaSnapshot| quota.groups.first().map(|group| (group.used, group.reserved));
        let quotas: Vec<_> = quotas.iter().filter_map(group).collect();
        format!(
            "busy {}, wakes {:?}, ended {}, quotas (used, held) {quotas:?}",
            worker.is_busy,
            worker.wakes,
            worker.stepped.is_none()
        )
    }

    /// Lets the resolver go on. Returns the time at which it must go on again.
    pub fn look_up(&mut self, now: Moment) -> Option<Moment> {
        self.names.act(now)
    }

    /// Returns `true` if a name has had this address a moment ago.
    pub fn knows(&self, address: IpAddr, now: Moment) -> bool {
        self.names.is_valid(address, now)
    }

    /// Returns `true` if it serves clients, and was not told to end.
    pub fn is_serving(&self) -> bool {
        matches!(self.stage, Stage::Serves)
    }

    /// Begins a drain.
    pub fn drain(&mut self) {
        if self.is_serving() {
            self.stage = Stage::Stops(self.gateway.begin_drain());
            self.wake();
        }
    }

    /// Begins to hand over.
    pub fn hand_over(&mut self) {
        self.stage = Stage::Leaves(self.gateway.begin_hand_over());
        self.wake();
    }

    fn wake(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.is_busy = true);
    }

    /// Goes on with its end. Returns the state that it hands over, when it is time for that.
    pub fn end_on(&mut self, now: Moment) -> Option<HandedState> {
        let goes_on = match &mut self.stage {
            Stage::Stops(stopping) | Stage::Leaves(stopping) => stopping.has_ended(),
            Stage::Handles(pulse, until) => pulse.is_answered() || now >= *until,
            Stage::Serves | Stage::Drains => false,
        };
        if !goes_on {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Drains) {
            Stage::Handles(..) => return Some(self.gateway.handed_state()),
            Stage::Leaves(_) => {
                self.gateway.drain_workers();
                self.stage = Stage::Handles(self.gateway.pulse(), now + HAND_OVER_MAX);
            }
            Stage::Stops(_) | Stage::Serves | Stage::Drains => self.gateway.drain_workers(),
        }
        None
    }

    /// The time at which it must go on with its end, whatever happens.
    pub fn ends_on_at(&self) -> Option<Moment> {
        if let Stage::Handles(_, until) = &self.stage { Some(*until) } else { None }
    }

    /// Returns `true` once all workers have ended.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.stepped.is_none())
    }

    /// Ends the diagnoses, and returns the records of all exchanges.
    pub fn end_diagnoses(&self, ledger: &mut Ledger) -> Vec<u8> {
        self.gateway.stop_diagnoses();
        if (0..TURNS_TO_END).all(|_| self.gateway.diagnose().is_some()) {
            ledger.accuse("the diagnoses do not end");
        }
        let mut lines = Vec::new();
        self.gateway.traffic().lines(1, &TrafficFilter::default(), usize::MAX, &mut lines);
        lines
    }

    /// Checks that nothing is left of the exchanges: the gateway waits for clients, as in the beginning.
    pub fn check_settled(&self, ledger: &mut Ledger) {
        let held = self.gateway.held();
        if held != (Held { connections: 0, exchanges: 0, gathered_bytes: 0 }) {
            ledger.accuse(format!("there are no clients, and the gateway holds {held:?}"));
        }
        let stats = self.gateway.stats();
        for (what, count) in [("open", stats.clients.open), ("idle", stats.clients.idle)] {
            if count != 0 {
                ledger.accuse(format!("there are no clients, and {count} are counted as {what}"));
            }
        }
        for provider in &stats.providers {
            let (open, idle) = (provider.connections_open, provider.connections_idle);
            if open != 0 || idle != 0 {
                ledger.accuse(format!(
                    "connections are kept for {IDLE_S} s, and of `{}` {open} are counted as open, {idle} as idle",
                    provider.name
                ));
            }
        }
        for quota in self.gateway.flows(100).quotas {
            for group in quota.groups.iter().filter(|group| group.reserved > 0) {
                ledger.accuse(format!("no call is under way, and `{}` holds {}", quota.name, group.reserved));
            }
        }
        for worker in &self.workers {
            let (before, now) = (worker.tasks, worker.stepped.as_ref().map_or(0, SteppedLoop::tasks));
            if now != before {
                ledger.accuse(format!("there is nothing to do, and there are {now} tasks, not {before}"));
            }
        }
    }
}
