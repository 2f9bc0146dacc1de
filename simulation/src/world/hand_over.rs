//! The hand-over from one process to the next.

use std::time::Duration;

use egret_clock::Moment;

use super::{Actor, World};
use crate::disks::Disks;
use crate::process::Process;

/// Interval at which a process that has handed over reports to the next one.
const REPORT_INTERVAL: Duration = Duration::from_millis(20);

impl World {
    /// Goes on with the end of a process.
    pub(super) fn end_on(&mut self, process: usize) {
        let handed = self.processes[process].end_on(self.now);
        if let Some(at) = self.processes[process].ends_on_at() {
            self.calendar.insert(Actor::HandOver, at);
        }
        if let Some(state) = handed {
            let next = &self.processes[process + 1].gateway;
            self.inheritance = Some(next.inherit(&state));
            next.open();
            self.note(|_| "the next process serves".to_owned());
            self.calendar.insert(Actor::HandOver, self.now + REPORT_INTERVAL);
        }
    }

    /// Starts a process that takes over from the present one.
    pub(super) fn hand_over(&mut self) {
        let Some(present) = self.processes.last_mut().filter(|present| present.is_serving()) else { return };
        // Without files a process cannot start, and the present one goes on.
        let Ok(sockets) = present.gateway.listening_sockets() else { return };
        let (disks, dice) = (Disks::default(), &mut self.dice);
        let started = Process::start(&self.config, disks, &sockets, &self.scenario, dice, self.now);
        let Ok(mut next) = started else { return };
        next.expect_tasks(&present.idle_tasks());
        present.hand_over();
        self.processes.push(next);
        self.calendar.insert(Actor::Diagnoses(self.processes.len() - 1), self.now);
    }

    /// The process that has handed over reports, and is lent units. Returns the time of the next report.
    pub(super) fn share(&mut self) -> Option<Moment> {
        let before = self.processes.len().checked_sub(2)?;
        let Some(mut inheritance) = self.inheritance.take() else {
            self.end_on(before);
            return None;
        };
        let (old, next) = (&self.processes[before], &self.processes[before + 1]);
        let has_ended = old.has_ended();
        let lendings = next.gateway.settle(&mut inheritance, &old.gateway.report());
        old.gateway.lend(Some(&lendings));
        if has_ended {
            // Units that the last refused call has wanted are returned.
            next.gateway.settle(&mut inheritance, &old.gateway.report());
            next.gateway.end(inheritance);
            return None;
        }
        self.inheritance = Some(inheritance);
        Some(self.now + REPORT_INTERVAL)
    }
}
