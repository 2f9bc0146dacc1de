//! Faults of a world, the time that its disk takes, and power failures.

use std::time::Duration;

use egret_kernel::disk::{DiskFaults, outside as disk};
use egret_kernel::{Faults, outside};

use super::{Actor, FILES_MAX, World};
use crate::disks::Disks;
use crate::process::Process;

impl World {
    /// From now on things go wrong.
    pub(super) fn begin_faults(&self) {
        outside::set_faults(self.scenario.faults);
        disk::set_faults(self.scenario.disk.as_ref().map(|plan| plan.faults).unwrap_or_default());
    }

    /// From now on nothing goes wrong.
    pub(super) fn end_faults(&self) {
        outside::set_faults(Faults::default());
        outside::set_files_max(FILES_MAX);
        disk::set_faults(DiskFaults::default());
    }

    /// Lets the users of the disk go on, once the disk has time for them.
    pub(super) fn call_disks(&mut self, process: usize) {
        let disks = &self.processes[process].disks;
        let quotas = disks.has_quotas().then_some((Actor::Quotas, self.now));
        let caches = disks.cache_due().map(|due| (Actor::Caches, due));
        for (actor, due) in quotas.into_iter().chain(caches) {
            if !self.calendar.contains_key(&actor) {
                let latency = self.latency();
                self.calendar.insert(actor, due + latency);
            }
        }
    }

    /// The time that the disk takes.
    pub(super) fn latency(&mut self) -> Duration {
        match &self.scenario.disk {
            None => Duration::ZERO,
            Some(plan) if self.dice.percent(plan.slow) => {
                Duration::from_millis(self.dice.between(100, 3_000))
            }
            Some(_) => self.dice.pause(5),
        }
    }

    /// The power fails, and the gateway is started again.
    pub(super) fn cut_power(&mut self) {
        if self.is_drained {
            return;
        }
        disk::cut_power();
        let tasks: Vec<usize> = self.processes.iter().flat_map(Process::idle_tasks).collect();
        self.processes.clear();
        self.calendar
            .retain(|actor, _| matches!(actor, Actor::Client(_) | Actor::Provider(_) | Actor::Event(_)));
        disk::restore_power();
        // What is wrong at a start is another matter: there, the gateway says so, and ends.
        let files_max = outside::files_max();
        self.end_faults();
        disk::set_free(None);
        if let Err(error) = self.start_again(&tasks) {
            return self.ledger.accuse(format!("the gateway does not start after a power failure: {error}"));
        }
        if !self.is_settling {
            outside::set_files_max(files_max);
            self.begin_faults();
        }
    }

    fn start_again(&mut self, tasks: &[usize]) -> Result<(), String> {
        let disks = Disks::open(self.scenario.disk.as_ref(), &self.floors, &mut self.ledger)?;
        let (config, scenario) = (&self.config, &self.scenario);
        let mut process = Process::start(config, disks, &[], scenario, &mut self.dice, self.now)?;
        process.gateway.open();
        process.expect_tasks(tasks);
        self.processes.push(process);
        self.calm_down();
        self.calendar.insert(Actor::Diagnoses(0), self.now);
        Ok(())
    }
}
