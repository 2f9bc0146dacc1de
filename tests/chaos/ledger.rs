//! The ledgers of clients and providers. Times are in nanoseconds since the
//! epoch, by the clock of the machine, which nobody sets meanwhile.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::SystemTime;

/// A kind of calls, which is the first segment of their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    /// GET without a quota, repeated up to [`ATTEMPTS`] times.
    Plain,
    /// POST without a quota, never repeated.
    Posts,
    /// The same over TLS.
    SecurePosts,
    /// GET over TLS.
    Secure,
    /// Quotas of each kind, drawn by `limit`.
    Sliding,
    Bucket,
    Fixed,
    Concurrent,
    Total,
}

/// Attempts that `retry` may make of a GET.
pub(crate) const ATTEMPTS: usize = 3;

/// Calls that are shown of a gateway that does not recover.
const LAST: usize = 3;

impl Group {
    /// Its name in paths.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Posts => "posts",
            Self::SecurePosts => "secure-posts",
            Self::Secure => "secure",
            Self::Sliding => "sliding",
            Self::Bucket => "bucket",
            Self::Fixed => "fixed",
            Self::Concurrent => "concurrent",
            Self::Total => "total",
        }
    }

    /// `true` if the gateway may send a call again.
    pub(crate) fn may_repeat(self) -> bool {
        matches!(self, Self::Plain | Self::Secure)
    }

    /// `true` if the provider is the one that speaks TLS.
    pub(crate) fn is_secure(self) -> bool {
        matches!(self, Self::Secure | Self::SecurePosts)
    }
}

/// The end of a call for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The provider's response to this very call.
    Answered,
    /// A response of the gateway: its status and the name of the error.
    Refused(u16, String),
    /// A response to something else.
    Wrong(String),
    /// No whole response.
    Lost(String),
}

/// A call as its client saw it.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) gateway: usize,
    pub(crate) group: Group,
    pub(crate) sent: u64,
    pub(crate) ended: u64,
    pub(crate) outcome: Outcome,
}

/// A call as a provider saw it.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) id: u64,
    pub(crate) provider: usize,
    pub(crate) came: u64,
    /// Time at which its response was sent.
    pub(crate) answered: Option<u64>,
}

/// The calls of all clients.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Vec<Call>>);

impl Calls {
    /// Notes a call that has ended.
    pub(crate) fn note(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }

    /// All calls so far, in the order of their ends.
    pub(crate) fn all(&self) -> Vec<Call> {
        self.0.lock().unwrap().clone()
    }

    /// The last calls of this group through this gateway, as a text.
    pub(crate) fn last(&self, gateway: usize, group: Group) -> String {
        let calls = self.0.lock().unwrap();
        let of = calls.iter().rev().filter(|call| call.gateway == gateway && call.group == group);
        of.take(LAST).map(|call| format!("\n    {call:?}")).collect()
    }

    /// Returns `true` if a call of this group through this gateway was sent after this time and answered.
    pub(crate) fn has_answered(&self, gateway: usize, group: Group, since: u64) -> bool {
        let calls = self.0.lock().unwrap();
        // Calls last for seconds at most, so those of before the time are soon reached.
        let recent = calls.iter().rev().take_while(|call| call.ended >= since);
        recent
            .filter(|call| call.gateway == gateway && call.group == group)
            .any(|call| call.sent >= since && call.outcome == Outcome::Answered)
    }
}

/// Reads a provider's ledger. A last line that is not whole, because the provider was killed, is left out.
pub(crate) fn arrivals(provider: usize, ledger: &str) -> Vec<Arrival> {
    let whole = ledger.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let (mut all, mut open) = (Vec::new(), HashMap::new());
    for line in whole.lines() {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_else(|| panic!("{line:?} in a ledger"));
        let (time, what, id) = (next().parse().unwrap(), next(), next().parse::<u64>().unwrap());
        match what {
            "came" => {
                open.insert(id, all.len());
                all.push(Arrival { id, provider, came: time, answered: None });
            }
            "answered" => all[open[&id]].answered = Some(time),
            _ => {}
        }
    }
    all
}

/// The present time.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}
