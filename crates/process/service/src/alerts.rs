//! Alerts of quotas: each is told once, in the log, as a metric, and to an exporter.
//!
//! Exchanges raise alerts and never wait. A thread tells them. It remembers what it has told in a file, so a
//! restart tells nothing twice; for units that a cluster shares, the store knows which gateway tells.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use egret_clock::{Clock, Moment, Timestamp, rfc3339};
use egret_cluster::{ClaimOutcome, ClusterClaims};
use egret_diagnosis::StateStore;
use egret_har::sink::{Exported, Sink};
use egret_quota::{Alert, AlertCount, AlertSink, Percent, QuotaConfigs, QuotaUnit};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::exports::DataDirectory;

/// File name of the alerts that were told.
const TOLD_FILE: &str = "alerts.json";
/// Maximum number of alerts that wait for the thread. Further ones are raised again later.
const WAITING_MAX: usize = 1_024;
/// Maximum number of alerts that are remembered. Beyond it, those whose window ends first are forgotten.
const TOLD_MAX: usize = 10_000;
/// Time for which an alert is remembered after its window: clocks may be set back.
const KEPT_AFTER: Duration = Duration::from_hours(24);
/// Maximum time for telling the last alerts when the process ends.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Number of bytes of the digest that identifies an alert.
const ID_BYTES: usize = 16;

/// The thread that tells alerts.
pub struct AlertDispatcher {
    way: Arc<AlertQueue>,
    thread: JoinHandle<()>,
}

impl AlertDispatcher {
    /// Starts the thread, which remembers alerts in `data_dir`.
    pub fn start(data_dir: &Path) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let way = Arc::new(AlertQueue { sender, state: Mutex::default() });
        let teller = Teller { queue: Arc::clone(&way), told: ToldAlerts(DataDirectory::new(data_dir)) };
        let thread =
            std::thread::Builder::new().name("egret-alerts".into()).spawn(move || teller.run(&receiver))?;
        Ok(Self { way, thread })
    }

    /// The receiver of alerts.
    pub fn sink(&self) -> Arc<dyn AlertSink> {
        Arc::clone(&self.way) as Arc<dyn AlertSink>
    }

    /// Sends alerts to `route` from now on. Returns the one before.
    pub fn send_to(&self, route: AlertRoute) -> AlertRoute {
        std::mem::replace(&mut self.way.state.lock().route, route)
    }

    /// Counts the alerts of these quotas from zero, unless they are counted already.
    pub fn count(&self, quotas: &QuotaConfigs) {
        let mut state = self.way.state.lock();
        for (name, quota) in quotas {
            for percent in &quota.alerts {
                state.counts.entry((name.as_str().into(), *percent)).or_default();
            }
        }
    }

    /// The numbers of alerts that were told.
    pub fn counts(&self) -> AlertCounts {
        AlertCounts(Arc::clone(&self.way))
    }

    /// Tells the waiting alerts, for a few seconds at most, and ends the thread.
    pub fn close(self) {
        self.way.state.lock().closing = Some(Instant::now() + CLOSE_MAX);
        // If there is no room, the thread is at work, and looks at the time after each alert.
        let _ = self.way.sender.try_send(AlertMessage::Close);
        if self.thread.join().is_err() {
            tracing::error!("the thread of alerts has failed: some were not told");
        }
    }
}

/// The way of alerts out of the process.
#[derive(Debug, Default)]
pub struct AlertRoute {
    /// The exporter that sends them; without it they are logged and counted only.
    pub exporter: Option<Arc<dyn Sink>>,
    /// The claims of the cluster, of which one gateway tells each.
    pub claims: Option<ClusterClaims>,
}

/// A view of the numbers of alerts.
#[derive(Debug, Clone)]
pub struct AlertCounts(Arc<AlertQueue>);

impl AlertCounts {
    /// Returns the numbers since the process started.
    pub fn read(&self) -> Vec<AlertCount> {
        let state = self.0.state.lock();
        let count = |((quota, percent), count): (&(Arc<str>, Percent), &u64)| AlertCount {
            quota: Arc::clone(quota),
            percent: *percent,
            count: *count,
        };
        state.counts.iter().map(count).collect()
    }
}

/// The way of alerts to the thread.
#[derive(Debug)]
struct AlertQueue {
    sender: SyncSender<AlertMessage>,
    state: Mutex<DispatchState>,
}

#[derive(Debug)]
enum AlertMessage {
    Raised(Alert),
    Close,
}

#[derive(Debug, Default)]
struct DispatchState {
    route: AlertRoute,
    /// Time after which no alert is told any more.
    closing: Option<Instant>,
    counts: BTreeMap<(Arc<str>, Percent), u64>,
}

impl AlertSink for AlertQueue {
    fn raise(&self, alert: Alert) -> bool {
        self.sender.try_send(AlertMessage::Raised(alert)).is_ok()
    }
}

/// The work of the thread.
struct Teller {
    queue: Arc<AlertQueue>,
    told: ToldAlerts,
}

impl Teller {
    fn run(self, alerts: &Receiver<AlertMessage>) {
        while let Ok(AlertMessage::Raised(alert)) = alerts.recv() {
            let now = Clock::new().timestamp(Moment::now());
            if self.is_first(&alert, now) {
                self.tell(&alert, now);
            }
            if self.queue.state.lock().closing.is_some_and(|closing| closing <= Instant::now()) {
                return tracing::warn!("some alerts are not told, because it takes too long");
            }
        }
    }

    /// Returns `true` if nobody has told this alert.
    fn is_first(&self, alert: &Alert, now: Timestamp) -> bool {
        let claims = self.queue.state.lock().route.claims.clone();
        let claims = claims.filter(|_| alert.is_shared);
        let claim =
            claims.map(|claims| claims.claim(&alert.identity(), alert.window_end.since(now) + KEPT_AFTER));
        match claim {
            Some(ClaimOutcome::Taken) => false,
            // While the store does not respond, another gateway may tell it too, which is better than none.
            Some(ClaimOutcome::Own | ClaimOutcome::Unknown) | None => {
                self.told.add(&id(alert), alert.window_end, now)
            }
        }
    }

    fn tell(&self, alert: &Alert, now: Timestamp) {
        let text = text(alert);
        tracing::warn!(
            quota = &*alert.quota,
            group = alert.group,
            percent = %alert.percent,
            used = alert.used,
            limit = alert.limit,
            window_end = time(alert.window_end),
            "{text}"
        );
        let mut state = self.queue.state.lock();
        *state.counts.entry((Arc::clone(&alert.quota), alert.percent)).or_default() += 1;
        // Under the lock, so a reload closes no exporter that is about to get an alert.
        if let Some(exporter) = &state.route.exporter {
            let entry = message(alert, &text, now);
            exporter.put(Exported { entry: &entry, client: None, service_token: "", environment: "" });
        }
    }
}

/// Returns a short text that identifies the alert, without the name of its group.
fn id(alert: &Alert) -> String {
    let digest = digest(&SHA256, &alert.identity());
    HEXLOWER.encode(&digest.as_ref()[..ID_BYTES])
}

fn time(at: Timestamp) -> String {
    rfc3339::write(UNIX_EPOCH + Duration::from_micros(at.as_micros()))
}

/// Describes an alert in one sentence.
fn text(alert: &Alert) -> String {
    let Alert { quota, group, percent, used, limit, unit, window_end, .. } = alert;
    let of_group = if group.is_empty() { String::new() } else { format!(" of group {group}") };
    let (used, limit, end) = (unit.amount(*used), unit.words(*limit), time(*window_end));
    format!("quota {quota}{of_group} has reached {percent}: {used} of {limit} are used until {end}")
}

/// Writes an alert as JSON (Standard Webhooks 1.0, "Payload structure").
fn message(alert: &Alert, text: &str, now: Timestamp) -> Vec<u8> {
    let unit = match alert.unit {
        QuotaUnit::Units => "units",
        QuotaUnit::Usd => "nano-dollars",
    };
    let message = json!({
        "id": id(alert),
        "type": "quota.alert",
        "timestamp": time(now),
        "text": text,
        "data": {
            "quota": &*alert.quota,
            "group": alert.group,
            "percent": alert.percent,
            "used": alert.used,
            "limit": alert.limit,
            "unit": unit,
            "window_end": time(alert.window_end),
        },
    });
    message.to_string().into_bytes()
}

/// The alerts that were told, in a file.
#[derive(Debug)]
struct ToldAlerts(DataDirectory);

/// The content of the file.
#[derive(Debug, Default, Deserialize, Serialize)]
struct ToldList {
    /// End of the window in microseconds since the epoch, by the id of the alert.
    told: BTreeMap<String, u64>,
}

impl ToldAlerts {
    /// Adds an alert. Returns `false` if it was there already. The file is read each time, because an earlier
    /// process may have written it since.
    fn add(&self, id: &str, window_end: Timestamp, now: Timestamp) -> bool {
        let bytes = self.0.load(TOLD_FILE).unwrap_or_default();
        let mut list: ToldList = serde_json::from_slice(&bytes).unwrap_or_default();
        list.told.retain(|_, end| Timestamp::from_micros(*end) + KEPT_AFTER > now);
        if list.told.insert(id.to_owned(), window_end.as_micros()).is_some() {
            return false;
        }
        while list.told.len() > TOLD_MAX {
            let first = list.told.iter().min_by_key(|(_, end)| **end).map(|(id, _)| id.clone());
            first.and_then(|first| list.told.remove(&first));
        }
        self.0.save(TOLD_FILE, &serde_json::to_vec(&list).unwrap_or_default());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_told_once_whichever_process_asks() {
        let directory = tempfile::tempdir().unwrap();
        let told = || ToldAlerts(DataDirectory::new(directory.path()));
        let (now, end) = (Timestamp::from_secs(1_790_000_000), Timestamp::from_secs(1_790_003_600));
        assert!(told().add("a", end, now));
        assert!(!told().add("a", end, now));
        assert!(told().add("b", end, now));
        // Long after the window, it is forgotten.
        let later = end + Duration::from_hours(25);
        assert!(told().add("c", later + Duration::from_hours(1), later));
        assert!(told().add("a", end, later));
    }

    #[test]
    fn the_memory_of_alerts_has_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let told = ToldAlerts(DataDirectory::new(directory.path()));
        let now = Timestamp::from_secs(1_790_000_000);
        let full =
            ToldList { told: (0..TOLD_MAX).map(|id| (format!("{id:05}"), now.as_micros() + 5)).collect() };
        told.0.save(TOLD_FILE, &serde_json::to_vec(&full).unwrap());
        assert!(told.add("more", now + Duration::from_hours(1), now));
        let list: ToldList = serde_json::from_slice(&told.0.load(TOLD_FILE).unwrap()).unwrap();
        assert!(list.told.len() == TOLD_MAX && list.told.contains_key("more"));
    }
}
