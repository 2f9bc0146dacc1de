//! A world: a gateway, its clients and its providers on one thread, and the order of all that happens.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egret_accounts::AccountConfigs;
use egret_clock::Moment;
use egret_clock::simulated::{self as ambient, Defect};
use egret_diagnosis::{Exports, TrafficConfig};
use egret_flow::config::FlowConfig;
use egret_gateway::{Gateway, Held, Stopping};
use egret_kernel::outside::{self, Dial, EndId};
use egret_kernel::{Counts, Faults};
use egret_net::event_loop::simulated::{LoopState, SteppedLoop};
use egret_plan::config::{GatewayConfig, Parts, Providers};
use egret_prices::PricesConfig;
use egret_quota::{QuotaConfigs, QuotaSnapshot, Stores};
use egret_store::SharedState;
use rustix::io::Errno;

use crate::client::Client;
use crate::ledger::Ledger;
use crate::names::{Names, provider_at};
use crate::provider::Provider;
use crate::scenario::{Dice, Event, IDLE_S, Scenario};

/// Maximum number of steps of a world.
const STEPS_MAX: u64 = 2_000_000;
/// Maximum number of steps without time passing.
const STEPS_AT_ONCE_MAX: u64 = 100_000;
/// Number of files that can be open usually.
const FILES_MAX: i32 = 1_024;
/// The time at which a world begins.
const BEGINNING: Moment = Moment::from_nanos(1_000_000_000_000);
/// The same by the system's clock: 2026-01-01.
const BEGINNING_S: u64 = 1_767_225_600;
/// Time for everything to end after the last client.
const SETTLING: Duration = Duration::from_secs(40);
/// Time within which a drain ends: `timeouts.drain` is not known to the workers, so exchanges end by theirs.
const DRAINING: Duration = Duration::from_secs(60);

/// The config of a world, in the structs of the gateway.
struct Config {
    gateway: GatewayConfig,
    providers: Providers,
    quotas: QuotaConfigs,
    flows: Vec<FlowConfig>,
    accounts: AccountConfigs,
    prices: PricesConfig,
    exports: Exports,
    traffic: TrafficConfig,
}

impl Config {
    fn of(scenario: &Scenario) -> Result<Self, serde_json::Error> {
        Ok(Self {
            gateway: serde_json::from_value(scenario.gateway())?,
            providers: serde_json::from_value(scenario.providers())?,
            quotas: serde_json::from_value(scenario.quotas())?,
            flows: serde_json::from_value(scenario.flows())?,
            accounts: AccountConfigs::default(),
            prices: PricesConfig::default(),
            exports: Exports::default(),
            // Without recordings, no thread of diagnoses is started.
            traffic: TrafficConfig { entries: 0, ..TrafficConfig::default() },
        })
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            gateway: &self.gateway,
            providers: &self.providers,
            quotas: &self.quotas,
            accounts: &self.accounts,
            prices: &self.prices,
            flows: &self.flows,
            stores: Stores::default(),
            shared: SharedState::default(),
            data_dir: None,
            exports: &self.exports,
            interception: None,
            inherited: &[],
            traffic: &self.traffic,
            isolated: false,
        }
    }
}

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

/// Somebody who goes on at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Worker(usize),
    Client(usize),
    Provider(EndId),
    Names,
    Dial(usize),
    Event(usize),
}

/// The result of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Rules that were broken.
    pub violations: Vec<String>,
    /// Number of steps.
    pub steps: u64,
    /// Number of all that has happened: equal for two runs that went the same way.
    pub trace: u64,
    /// Calls and faults of the kernel.
    pub counts: Counts,
    /// Requests that were answered, refused, cut, and lost with their connection.
    pub outcomes: [u64; 4],
    /// Time that has passed in the world.
    pub passed: Duration,
    /// Number of changes of the gateway while it ran.
    pub events: u64,
    /// The steps, one a line, if that was asked for.
    pub log: Vec<String>,
}

/// A world.
pub struct World {
    now: Moment,
    scenario: Scenario,
    config: Config,
    gateway: Arc<Gateway>,
    workers: Vec<Worker>,
    names: Names,
    clients: Vec<Client>,
    providers: BTreeMap<EndId, Provider>,
    dials: Vec<(Dial, Option<Errno>)>,
    /// Times at which somebody goes on.
    calendar: BTreeMap<Actor, Moment>,
    ledger: Ledger,
    dice: Dice,
    draining: Option<Stopping>,
    is_drained: bool,
    steps: u64,
    steps_at_once: u64,
    log: Option<Vec<String>>,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes panics instead of printing them: each is a violation of the world that runs.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()))));
}

/// Runs the world of a seed, with a planted defect or none.
///
/// # Errors
///
/// Fails if its config is not valid, which is a mistake of the simulation.
pub fn run(seed: u64, defect: Option<Defect>, keeps_log: bool) -> Result<Report, String> {
    let scenario = Scenario::of(seed);
    PANICS.take();
    ambient::begin(BEGINNING.as_nanos(), BEGINNING_S * 1_000_000, seed, defect);
    outside::begin(seed, Faults::default(), FILES_MAX);
    let mut world = World::new(scenario, keeps_log)?;
    world.play();
    Ok(world.end())
}

impl World {
    fn new(scenario: Scenario, keeps_log: bool) -> Result<Self, String> {
        let mut dice = scenario.dice.clone();
        let config = Config::of(&scenario).map_err(|error| error.to_string())?;
        let (names, resolver) =
            Names::start(&config.gateway.dns, dice.split(), scenario.trouble.dns, scenario.ttl, BEGINNING)
                .map_err(|error| error.to_string())?;
        let (gateway, loops) =
            Gateway::simulated(config.parts(), resolver).map_err(|error| error.to_string())?;
        let worker = |stepped| Worker { stepped: Some(stepped), is_busy: true, wakes: None, tasks: 0 };
        let clients = scenario.clients.iter().cloned().zip(1..);
        let mut world = Self {
            now: BEGINNING,
            config,
            gateway,
            workers: loops.into_iter().map(worker).collect(),
            names,
            clients: clients.map(|(plan, number)| Client::new(number, plan, BEGINNING)).collect(),
            providers: BTreeMap::new(),
            dials: Vec::new(),
            calendar: BTreeMap::new(),
            ledger: Ledger::new(&scenario),
            dice,
            draining: None,
            is_drained: false,
            steps: 0,
            steps_at_once: 0,
            log: keeps_log.then(Vec::new),
            scenario,
        };
        world.note(|world| format!("{:?} {:?}", world.scenario.remedies, world.scenario.events));
        world.calm_down();
        for worker in &mut world.workers {
            worker.tasks = worker.stepped.as_ref().map_or(0, SteppedLoop::tasks);
        }
        outside::set_faults(world.scenario.faults);
        for client in 0..world.clients.len() {
            world.calendar.insert(Actor::Client(client), BEGINNING);
        }
        for (number, (after, _)) in world.scenario.events.iter().enumerate() {
            world.calendar.insert(Actor::Event(number), BEGINNING + *after);
        }
        Ok(world)
    }

    /// Lets the gateway go on until it waits, before anybody connects.
    fn calm_down(&mut self) {
        for worker in 0..self.workers.len() {
            while self.is_due(Actor::Worker(worker)) {
                self.act(Actor::Worker(worker));
            }
        }
    }

    fn play(&mut self) {
        self.play_until(
            |world| world.clients.iter().all(|client| client.is_done),
            Duration::from_secs(3_600),
        );
        if !self.ledger.violations.is_empty() {
            return;
        }
        self.ledger.check_ends();
        let settled = self.now + SETTLING;
        outside::set_faults(Faults::default());
        outside::set_files_max(FILES_MAX);
        self.play_until(|world| world.now >= settled, SETTLING * 2);
        if !self.is_drained {
            self.check_settled();
            self.calendar.retain(|actor, _| !matches!(actor, Actor::Event(_)));
            self.drain();
        }
        self.play_until(|world| world.workers.iter().all(|worker| worker.stepped.is_none()), DRAINING);
        if self.workers.iter().any(|worker| worker.stepped.is_some()) {
            self.ledger.accuse("the drain does not end");
        }
    }

    /// Goes on until `is_over`, or for this time at most.
    fn play_until(&mut self, is_over: impl Fn(&Self) -> bool, most: Duration) {
        let deadline = self.now + most;
        while self.ledger.violations.is_empty() && !is_over(self) {
            if !self.step(deadline) {
                break;
            }
            if self.steps > STEPS_MAX {
                self.ledger.accuse("the world does not end");
            } else if self.steps_at_once > STEPS_AT_ONCE_MAX {
                self.ledger.accuse("somebody goes on without an end, and no time passes");
            }
            PANICS.with_borrow_mut(|panics| {
                for panic in panics.drain(..) {
                    self.ledger.accuse(format!("a task has panicked: {panic}"));
                }
            });
        }
    }

    /// Lets somebody go on, or time pass. Returns `false` at the deadline.
    fn step(&mut self, deadline: Moment) -> bool {
        self.steps += 1;
        self.steps_at_once += 1;
        let workers = (0..self.workers.len()).map(Actor::Worker).filter(|actor| self.is_due(*actor));
        let others = self.calendar.iter().filter(|(_, at)| **at <= self.now).map(|(actor, _)| *actor);
        let due: Vec<Actor> = workers.chain(others).collect();
        if !due.is_empty() {
            let actor = self.dice.pick(&due);
            self.act(actor);
            return true;
        }
        let wakes =
            self.workers.iter().filter(|worker| worker.stepped.is_some()).filter_map(|worker| worker.wakes);
        let next = self.calendar.values().copied().chain(wakes).min().unwrap_or(deadline);
        self.now = next.min(deadline);
        ambient::advance_to(self.now.as_nanos());
        self.steps_at_once = 0;
        next < deadline
    }

    fn is_due(&self, actor: Actor) -> bool {
        let Actor::Worker(number) = actor else { return false };
        let worker = &self.workers[number];
        let Some(stepped) = &worker.stepped else { return false };
        let is_woken = || worker.wakes.is_some_and(|wakes| wakes <= self.now);
        worker.is_busy || is_woken() || outside::has_news(stepped.poller())
    }

    fn note(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.log.is_some() {
            let at = self.now.since(BEGINNING);
            let line = format!("{:>12.6} {}", at.as_secs_f64(), what(self));
            self.log.as_mut().into_iter().for_each(|log| log.push(line.clone()));
        }
    }

    fn act(&mut self, actor: Actor) {
        self.calendar.remove(&actor);
        let again = match actor {
            Actor::Worker(number) => {
                self.turn(number);
                None
            }
            Actor::Client(number) => {
                let again = self.clients[number].act(self.now, &mut self.dice, &mut self.ledger);
                self.note(|world| format!("client {number}: {}", world.clients[number].describe()));
                again
            }
            Actor::Provider(end) => {
                let trouble = self.scenario.trouble;
                let Some(provider) = self.providers.get_mut(&end) else { return };
                let again = provider.act(self.now, &mut self.dice, trouble, &mut self.ledger);
                self.note(|world| {
                    format!("provider: {:?}", world.providers.get(&end).map(Provider::describe))
                });
                again
            }
            Actor::Names => self.names.act(self.now),
            Actor::Dial(number) => {
                self.decide(number);
                None
            }
            Actor::Event(number) => {
                let event = self.scenario.events[number].1;
                self.note(|_| format!("{event:?}"));
                self.happen(event);
                None
            }
        };
        if let Some(again) = again {
            self.calendar.insert(actor, again.max(self.now));
        }
        self.look_around();
    }

    /// Notes who has news.
    fn look_around(&mut self) {
        for end in outside::take_touched() {
            if let Some(number) = self.clients.iter().position(|client| client.end == Some(end)) {
                self.calendar.insert(Actor::Client(number), self.now);
            } else if self.providers.contains_key(&end) {
                self.calendar.insert(Actor::Provider(end), self.now);
            }
        }
    }

    fn turn(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let Some(stepped) = &mut worker.stepped else { return };
        let turn = stepped.turn();
        worker.is_busy = turn == LoopState::Busy;
        // The system rounds up to whole milliseconds.
        let limit = outside::wait_limit_ns(stepped.poller()).map(|ns| ns.div_ceil(1_000_000) * 1_000_000);
        worker.wakes = limit.map(|ns| self.now + Duration::from_nanos(ns));
        if turn == LoopState::Ended {
            worker.stepped = None;
        }
        self.note(|world| {
            let quotas = world.gateway.flows(1).quotas;
            let group =
                |quota: &QuotaSnapshot| quota.groups.first().map(|group| (group.used, group.reserved));
            let quotas: Vec<_> = quotas.iter().filter_map(group).collect();
            format!(
                "worker {number}: {turn:?}, wakes {:?}, quotas (used, held) {quotas:?}",
                world.workers[number].wakes
            )
        });
        for dial in outside::take_dials() {
            self.plan_dial(dial);
        }
        if let Some(again) = self.names.act(self.now) {
            self.calendar.insert(Actor::Names, again);
        }
        if let Some(stopping) = &mut self.draining
            && stopping.has_ended()
        {
            self.draining = None;
            self.gateway.drain_workers();
        }
    }

    /// Decides what comes of a connection that the gateway opens, and when.
    fn plan_dial(&mut self, dial: Dial) {
        let fails = provider_at(dial.to.ip()).is_none() || self.dice.percent(self.scenario.trouble.dial);
        let after = self.dice.pause(60);
        self.note(|_| format!("dial {dial:?}, fails: {fails}"));
        let error = fails.then(|| self.dice.pick(&[Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::TIMEDOUT]));
        self.dials.push((dial, error));
        if error != Some(Errno::TIMEDOUT) {
            // A dial that times out is never answered: the gateway gives it up.
            self.calendar.insert(Actor::Dial(self.dials.len() - 1), self.now + after);
        }
    }

    fn decide(&mut self, number: usize) {
        let (dial, error) = self.dials[number];
        if let Some(error) = error {
            return outside::fail(dial, error);
        }
        let (room, gateway_room) = (self.dice.room(), self.dice.room());
        if let (Some(provider), Some(end)) =
            (provider_at(dial.to.ip()), outside::establish(dial, room, gateway_room))
        {
            self.providers.insert(end, Provider::new(provider, end, &mut self.dice));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Reload => {
                if let Err(error) = self.gateway.reload(self.config.parts()) {
                    self.ledger.accuse(format!("a reload has failed: {error}"));
                }
            }
            Event::Drain => self.drain(),
            Event::ClockStep(seconds) => ambient::step_system_time(seconds * 1_000_000),
            Event::FewFiles(few) => outside::set_files_max(few),
            Event::ManyFiles => outside::set_files_max(FILES_MAX),
        }
    }

    fn drain(&mut self) {
        if !std::mem::replace(&mut self.is_drained, true) {
            self.draining = Some(self.gateway.begin_drain());
            for worker in &mut self.workers {
                worker.is_busy = true;
            }
        }
    }

    /// Checks that nothing is left of the exchanges: the gateway waits for clients, as in the beginning.
    fn check_settled(&mut self) {
        let held = self.gateway.held();
        if held != (Held { connections: 0, exchanges: 0, gathered_bytes: 0 }) {
            self.ledger.accuse(format!("there are no clients, and the gateway holds {held:?}"));
        }
        let stats = self.gateway.stats();
        for (what, count) in [("open", stats.clients.open), ("idle", stats.clients.idle)] {
            if count != 0 {
                self.ledger.accuse(format!("there are no clients, and {count} are counted as {what}"));
            }
        }
        for provider in &stats.providers {
            let (open, idle) = (provider.connections_open, provider.connections_idle);
            if open != 0 || idle != 0 {
                self.ledger.accuse(format!(
                    "connections are kept for {IDLE_S} s, and of `{}` {open} are counted as open, {idle} as idle",
                    provider.name
                ));
            }
        }
        for quota in self.gateway.flows(100).quotas {
            for group in quota.groups.iter().filter(|group| group.reserved > 0) {
                self.ledger
                    .accuse(format!("no call is under way, and `{}` holds {}", quota.name, group.reserved));
            }
        }
        self.check_files_and_tasks();
    }

    fn check_files_and_tasks(&mut self) {
        // The listener, and its handle for a process that takes over.
        let files = outside::open_files();
        if files > 2 {
            let open = outside::describe_open();
            self.ledger.accuse(format!("there are no connections, and {files} files are open: {open:?}"));
        }
        for worker in &self.workers {
            let (before, now) = (worker.tasks, worker.stepped.as_ref().map_or(0, SteppedLoop::tasks));
            if now != before {
                self.ledger
                    .violations
                    .push(format!("there is nothing to do, and there are {now} tasks, not {before}"));
            }
        }
    }

    fn end(self) -> Report {
        let Self { workers, gateway, names, mut ledger, now, steps, log, scenario, .. } = self;
        drop(workers);
        drop(gateway);
        drop(names);
        let files = outside::open_files();
        if files > 0 && ledger.violations.is_empty() {
            ledger.accuse(format!(
                "the gateway has ended, and {files} files are open: {:?}",
                outside::describe_open()
            ));
        }
        Report {
            violations: ledger.violations,
            steps,
            trace: outside::trace(),
            counts: outside::counts(),
            outcomes: ledger.outcomes,
            passed: now.since(BEGINNING),
            events: scenario.events.len() as u64,
            log: log.unwrap_or_default(),
        }
    }
}
