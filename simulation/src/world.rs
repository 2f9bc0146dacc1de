//! A world: a gateway, its clients and its providers on one thread, and the order of all that happens.

mod hand_over;
mod power;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use egret_clock::Moment;
use egret_clock::simulated::{self as ambient, Defect};
use egret_kernel::disk::{DiskCounts, outside as disk};
use egret_kernel::outside::{self, Dial, EndId};
use egret_kernel::{Counts, Faults};
use egret_quota::Inheritance;
use rustix::io::Errno;

use crate::any_client::AnyClient;
use crate::any_provider::AnyProvider;
use crate::caller::Caller;
use crate::config::Config;
use crate::disks::{Disks, Floors};
use crate::ledger::Ledger;
use crate::names::provider_at;
use crate::process::Process;
use crate::scenario::{ClientPlan, Dice, Event, Scenario};
use crate::tls_settings::TlsSettings;

/// Maximum number of steps of a world.
const STEPS_MAX: u64 = 2_000_000;
/// Maximum number of steps without time passing.
const STEPS_AT_ONCE_MAX: u64 = 100_000;
/// Number of files that can be open usually.
const FILES_MAX: i32 = 1_024;
/// The time at which a world begins.
const BEGINNING: Moment = Moment::from_nanos(1_000_000_000_000);
/// The same by the system's clock: 2026-01-01.
pub const BEGINNING_S: u64 = 1_767_225_600;
/// Time for everything to end after the last client.
const SETTLING: Duration = Duration::from_secs(40);
/// Time within which a drain ends: `timeouts.drain` is not known to the workers, so exchanges end by theirs.
const DRAINING: Duration = Duration::from_secs(60);

/// Somebody who goes on at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    /// A worker of a process.
    Worker(usize, usize),
    Client(usize),
    Provider(EndId),
    /// The resolver of a process.
    Names(usize),
    Dial(usize),
    Event(usize),
    /// The diagnoses of a process.
    Diagnoses(usize),
    /// The hand-over from one process to the next.
    HandOver,
    /// The thread of the quotas' file.
    Quotas,
    /// The threads of the caches' disks.
    Caches,
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
    /// Calls and faults of the disk.
    pub disk: DiskCounts,
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
    tls: TlsSettings,
    /// Units that the file of quotas must not forget.
    floors: Floors,
    /// The gateway's processes, each of which has taken over from the one before it.
    processes: Vec<Process>,
    /// The units that the process before the last one may still use.
    inheritance: Option<Inheritance>,
    clients: Vec<AnyClient>,
    providers: BTreeMap<EndId, AnyProvider>,
    dials: Vec<(Dial, Option<Errno>)>,
    /// Times at which somebody goes on.
    calendar: BTreeMap<Actor, Moment>,
    ledger: Ledger,
    dice: Dice,
    is_drained: bool,
    /// All clients are done, and nothing goes wrong any more.
    is_settling: bool,
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
    disk::begin(seed);
    let mut world = World::new(scenario, keeps_log)?;
    world.play();
    Ok(world.end())
}

impl World {
    fn new(scenario: Scenario, keeps_log: bool) -> Result<Self, String> {
        let mut dice = scenario.dice.clone();
        let (mut ledger, floors) = (Ledger::new(&scenario), Floors::default());
        let tls = TlsSettings::of(&scenario)?;
        let config = Config::of(&scenario).map_err(|error| error.to_string())?;
        let disks = Disks::open(scenario.disk.as_ref(), &floors, &mut ledger)?;
        let process = Process::start(&config, disks, &[], &scenario, &mut dice, BEGINNING)?;
        let client = |(plan, number): (&ClientPlan, u8)| {
            let settings = tls.of_client(plan.is_http2);
            AnyClient::new(Caller::new(number, plan.clone(), settings, BEGINNING))
        };
        let clients = scenario.clients.iter().zip(1..).map(client).collect();
        let mut world = Self {
            now: BEGINNING,
            config,
            tls,
            floors,
            processes: vec![process],
            inheritance: None,
            clients,
            providers: BTreeMap::new(),
            dials: Vec::new(),
            calendar: BTreeMap::new(),
            ledger,
            dice,
            is_drained: false,
            is_settling: false,
            steps: 0,
            steps_at_once: 0,
            log: keeps_log.then(Vec::new),
            scenario,
        };
        world.note(|world| format!("{:?} {:?}", world.scenario.remedies, world.scenario.events));
        world.processes[0].gateway.open();
        world.calm_down();
        world.processes[0].note_tasks();
        world.begin_faults();
        world.calendar.insert(Actor::Diagnoses(0), BEGINNING);
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
        loop {
            let Some(worker) = self.due_workers().next() else { return };
            self.act(worker);
        }
    }

    fn play(&mut self) {
        self.play_until(|world| world.clients.iter().all(AnyClient::is_done), Duration::from_secs(3_600));
        if !self.ledger.violations.is_empty() {
            return;
        }
        self.ledger.check_ends();
        let settled = self.now + SETTLING;
        self.is_settling = true;
        self.end_faults();
        let stays_full = self.scenario.disk.as_ref().is_some_and(|plan| plan.stays_full);
        if !stays_full {
            disk::set_free(None);
        }
        self.play_until(|world| world.now >= settled, SETTLING * 2);
        if !stays_full && let Some(present) = self.processes.last_mut() {
            present.disks.check_quotas(&mut self.ledger);
        }
        if !self.is_drained {
            self.check_settled();
            self.calendar.retain(|actor, _| !matches!(actor, Actor::Event(_)));
            self.drain();
        }
        self.play_until(|world| world.processes.iter().all(Process::has_ended), DRAINING);
        if self.ledger.violations.is_empty() && !self.processes.iter().all(Process::has_ended) {
            self.ledger.accuse("the drain does not end");
        }
        self.check_records();
    }

    /// Lets the diagnoses end, and checks that they have seen each exchange once.
    fn check_records(&mut self) {
        let mut lines = Vec::new();
        for process in &mut self.processes {
            lines.extend(process.end_diagnoses(&mut self.ledger));
            process.disks.check_records(&mut self.ledger);
        }
        // Those of a process without power are lost.
        let has_all = self.scenario.is_watched && disk::counts().cuts == 0;
        if has_all && self.ledger.violations.is_empty() {
            self.ledger.check_records(&lines);
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
        let workers = self.due_workers();
        let others = self.calendar.iter().filter(|(_, at)| **at <= self.now).map(|(actor, _)| *actor);
        let due: Vec<Actor> = workers.chain(others).collect();
        if !due.is_empty() {
            let actor = self.dice.pick(&due);
            self.act(actor);
            return true;
        }
        let wakes = self.processes.iter().filter_map(Process::wakes);
        let next = self.calendar.values().copied().chain(wakes).min().unwrap_or(deadline);
        self.now = next.min(deadline);
        ambient::advance_to(self.now.as_nanos());
        self.steps_at_once = 0;
        next < deadline
    }

    fn due_workers(&self) -> impl Iterator<Item = Actor> {
        let all = self.processes.iter().zip(0..);
        all.flat_map(|(process, number)| {
            let due = (0..process.workers()).filter(|worker| process.is_due(*worker, self.now));
            due.map(move |worker| Actor::Worker(number, worker))
        })
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
            Actor::Worker(process, worker) => {
                self.turn(process, worker);
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
                    format!("provider: {:?}", world.providers.get(&end).map(AnyProvider::describe))
                });
                again
            }
            Actor::Names(process) => self.processes[process].look_up(self.now),
            Actor::Diagnoses(process) => {
                let again = self.processes[process].gateway.diagnose();
                let latency = self.latency();
                again.map(|again| again + latency)
            }
            Actor::HandOver => self.share(),
            Actor::Quotas => {
                self.processes.iter_mut().for_each(|process| process.disks.lend());
                None
            }
            Actor::Caches => {
                self.processes.iter_mut().for_each(|process| process.disks.turn_caches());
                self.processes.iter().filter_map(|process| process.disks.cache_due()).min()
            }
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
            if let Some(number) = self.clients.iter().position(|client| client.end() == Some(end)) {
                self.calendar.insert(Actor::Client(number), self.now);
            } else if self.providers.contains_key(&end) {
                self.calendar.insert(Actor::Provider(end), self.now);
            }
        }
    }

    fn turn(&mut self, process: usize, worker: usize) {
        let calls = disk::counts().calls;
        self.processes[process].turn(worker, self.now);
        if disk::counts().calls != calls {
            self.ledger.accuse("a worker has waited for the disk");
        }
        self.note(|world| {
            format!("worker {process}.{worker}: {}", world.processes[process].describe(worker))
        });
        for dial in outside::take_dials() {
            self.plan_dial(dial);
        }
        if let Some(again) = self.processes[process].look_up(self.now) {
            self.calendar.insert(Actor::Names(process), again);
        }
        self.end_on(process);
        self.call_disks(process);
    }

    /// Decides what comes of a connection that the gateway opens, and when.
    fn plan_dial(&mut self, dial: Dial) {
        if !self.processes.iter().any(|process| process.knows(dial.to.ip(), self.now)) {
            self.ledger.accuse(format!("{} is dialled, and no name has this address", dial.to));
        }
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
            let link = self.tls.link(provider, end, &mut self.dice);
            let begun = AnyProvider::new(provider, link, &self.scenario, &mut self.dice);
            self.providers.insert(end, begun);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Reload => {
                let present = self.processes.last_mut().filter(|present| present.is_serving());
                let reloaded = present.map(|present| present.reload(&self.config));
                // Without the files that it names, a config is not applied.
                if let Some(Err(error)) = reloaded
                    && self.scenario.disk.is_none()
                {
                    self.ledger.accuse(format!("a reload has failed: {error}"));
                }
            }
            Event::HandOver => self.hand_over(),
            Event::Drain => self.drain(),
            Event::ClockStep(seconds) => ambient::step_system_time(seconds * 1_000_000),
            Event::FewFiles(few) => outside::set_files_max(few),
            Event::ManyFiles => outside::set_files_max(FILES_MAX),
            Event::FullDisk(_) if self.is_settling => {}
            Event::FullDisk(bytes) => disk::set_free(Some(bytes)),
            Event::FreeDisk => disk::set_free(None),
            Event::PowerCut => self.cut_power(),
        }
    }

    fn drain(&mut self) {
        if !std::mem::replace(&mut self.is_drained, true) {
            self.processes.iter_mut().for_each(Process::drain);
        }
    }

    /// Checks that nothing is left of the exchanges.
    fn check_settled(&mut self) {
        let Some((present, before)) = self.processes.split_last() else { return };
        present.check_settled(&mut self.ledger);
        if !before.iter().all(Process::has_ended) {
            self.ledger.accuse("a process that has handed over does not end");
        }
        // The listener, and its handle for a process that takes over.
        let files = outside::open_files();
        if files > 2 {
            let open = outside::describe_open();
            self.ledger.accuse(format!("there are no connections, and {files} files are open: {open:?}"));
        }
    }

    fn end(self) -> Report {
        let Self { processes, mut ledger, now, steps, log, scenario, .. } = self;
        drop(processes);
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
            disk: disk::counts(),
            outcomes: ledger.outcomes,
            passed: now.since(BEGINNING),
            events: scenario.events.len() as u64,
            log: log.unwrap_or_default(),
        }
    }
}
