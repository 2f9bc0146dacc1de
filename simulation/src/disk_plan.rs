//! The disk of a world: its content, and its faults.

use std::time::Duration;

use egret_kernel::disk::DiskFaults;
use serde_json::{Value, json};

use crate::scenario::{Dice, Event, Quota, QuotaKind, Scenario};

/// The directory of recorded exchanges.
pub const RECORDS: &str = "/records";

/// The content of a disk, and its faults.
#[derive(Debug, Clone)]
pub struct DiskPlan {
    /// The cache keeps responses on it.
    pub caches: bool,
    /// The quota is kept on it.
    pub keeps_quota: bool,
    /// The exporter of exchanges, if there is one.
    pub exporter: Option<Value>,
    /// Chances of faults.
    pub faults: DiskFaults,
    /// The chance, of 100, that it takes long.
    pub slow: u64,
    /// Events, by their time.
    events: Vec<(Duration, Event)>,
    /// It is full at the end of the world, if it was full before.
    pub stays_full: bool,
}

impl DiskPlan {
    /// Chooses one. In a calm world the disk may fail too: traffic must not.
    pub fn draw(dice: &mut Dice, is_calm: bool) -> Self {
        let keeps_quota = dice.percent(50);
        let caches = !keeps_quota || dice.percent(40);
        let exporter = dice.percent(60).then(|| {
            let kind = dice.pick(&["har", "ndjson"]);
            let rotate = dice.pick(&["4KiB", "16KiB", "1MiB"]);
            let gzip = dice.percent(20);
            let config = json!({ "directory": RECORDS, "rotate": rotate, "rotate_after": "5s", "keep": "0B", "gzip": gzip });
            json!({ kind: config })
        });
        let is_good = dice.percent(30);
        let mut chance = |most: u64| if is_good || dice.percent(50) { 0 } else { dice.between(0, most) };
        let faults = DiskFaults {
            short_write: chance(300),
            write: chance(60),
            sync: chance(100),
            rename: chance(60),
            read: chance(30),
        };
        let mut events = Vec::new();
        let at = |dice: &mut Dice| Duration::from_millis(dice.between(1, 8_000));
        let is_full = dice.percent(40);
        if is_full {
            events.push((at(dice), Event::FullDisk(dice.between(0, 6_000))));
        }
        let stays_full = is_full && dice.percent(50);
        if is_full && !stays_full {
            events.push((at(dice) + Duration::from_secs(1), Event::FreeDisk));
        }
        while !is_calm && events.len() < 4 && dice.percent(45) {
            events.push((at(dice), Event::PowerCut));
        }
        let slow = dice.pick(&[0, 0, 10, 50]);
        Self { caches, keeps_quota, exporter, faults, slow, events, stays_full }
    }

    /// Changes a scenario accordingly. One process uses a disk: another one that takes over would wait for
    /// its files.
    pub fn apply(self, scenario: &mut Scenario, dice: &mut Dice) {
        scenario.remedies.caches |= self.caches;
        if self.keeps_quota {
            let quota = Quota { kind: QuotaKind::Durable, limit: dice.between(1, 12) };
            scenario.remedies.quota = Some((quota, dice.percent(50)));
        }
        scenario.events.retain(|(_, event)| *event != Event::HandOver);
        scenario.events.extend(self.events.iter().copied());
        scenario.disk = Some(self);
    }
}
