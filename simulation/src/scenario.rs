//! The plan of a world, drawn from its seed: the config, the clients and their requests, and the chance of
//! each fault.

mod sections;

use std::time::Duration;

use egret_clock::mixed;
use egret_kernel::Faults;

pub use crate::dice::{Dice, Scale};
use crate::disk_plan::DiskPlan;
use crate::tls_plan::TlsPlan;

/// The provider with flows, and the one without.
pub const PROVIDERS: [&str; 2] = ["one", "two"];
/// Time for the first byte of a response, in seconds.
pub const FIRST_BYTE_S: u64 = 5;
/// Time for a whole exchange, in seconds.
pub const TOTAL_S: u64 = 15;
/// Time for which connections to providers are kept, in seconds.
pub const IDLE_S: u64 = 10;
/// The window of the quota, in milliseconds.
pub const WINDOW_MS: u64 = 2_000;

/// The kind of a quota, as the ledger checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaKind {
    /// No window has more than the limit.
    Sliding,
    /// No more are at once at the provider.
    Concurrency,
    /// At most the limit at once, and evenly more.
    TokenBucket,
    /// No more than the limit in a window that is longer than the world. It is kept in a file.
    Durable,
}

/// The quota that a world checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Its kind.
    pub kind: QuotaKind,
    /// Its limit.
    pub limit: u64,
}

/// The remedies of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each stands for a remedy that is there or not")]
pub struct Remedies {
    /// Number of calls that `retry` may make. 0 without it.
    pub attempts: u64,
    /// A second call is made beside a slow one.
    pub hedges: bool,
    /// Responses are stored.
    pub caches: bool,
    /// Too many failures open a circuit.
    pub breaks: bool,
    /// Calls have a time limit.
    pub limits_time: bool,
    /// The number of exchanges at once. 0 without the remedy.
    pub concurrency: u64,
    /// The quota, and whether its calls wait.
    pub quota: Option<(Quota, bool)>,
}

/// The way in which a client leaves before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It closes the connection.
    Close,
    /// It resets the connection.
    Reset,
    /// It closes its sending side, and reads on.
    Half,
}

/// A request of a client.
#[derive(Debug, Clone)]
pub struct RequestPlan {
    /// Its number, which no other request of the world has.
    pub id: u64,
    /// Its method.
    pub method: &'static str,
    /// The provider that it is for.
    pub provider: usize,
    /// The resource that it shares with others, for the cache.
    pub shared: Option<u64>,
    /// Length of its body.
    pub body_len: usize,
    /// Size of the chunks in which its body is sent; 0 for a length.
    pub chunk: usize,
    /// It has an idempotency key.
    pub has_key: bool,
    /// Time that passes before it is sent.
    pub think: Duration,
    /// Sends an absolute target, as to a forward proxy.
    pub is_absolute: bool,
    /// Its provider uses TLS.
    pub is_secured: bool,
}

impl RequestPlan {
    /// Path of its target.
    pub fn path(&self) -> String {
        match self.shared {
            Some(resource) => format!("/shared/{resource}"),
            None => format!("/item/{}", self.id),
        }
    }

    /// Returns `true` if it may be sent twice by itself (RFC 9110 §9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.method != "POST"
    }
}

/// A client's connection.
#[derive(Debug, Clone)]
pub struct ClientPlan {
    /// Time at which it connects.
    pub after: Duration,
    /// Its requests, in order.
    pub requests: Vec<RequestPlan>,
    /// It speaks HTTP/2.
    pub is_http2: bool,
    /// It does not wait for responses: in HTTP/2 some streams are open at once.
    pub pipelines: bool,
    /// Longest piece in which it sends.
    pub piece: usize,
    /// Longest pause between pieces, in milliseconds.
    pub pause_ms: u64,
    /// Number of bytes that it holds.
    pub room: usize,
    /// Number of bytes that the gateway's end holds.
    pub gateway_room: usize,
    /// Most bytes that it reads at once.
    pub read: usize,
    /// It leaves after it has sent and received this number of bytes, in this way.
    pub leave: Option<(u64, Leave)>,
    /// It stops to read for this time, once, after this number of bytes.
    pub stall: Option<(u64, Duration)>,
    /// The chance, of 100, that something goes wrong with the TLS of a connection.
    pub tls_trouble: u64,
}

/// Chances, of 100, that peers misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trouble {
    /// A dial is refused, or not answered.
    pub dial: u64,
    /// A provider answers with an error.
    pub status: u64,
    /// A provider closes or resets a connection at any point.
    pub cut: u64,
    /// A provider stalls at any point.
    pub stall: u64,
    /// A provider closes an idle connection.
    pub idle_close: u64,
    /// Name servers fail, lie or are slow.
    pub dns: u64,
    /// A provider answers before it has read the body.
    pub early: u64,
    /// A provider sends what is no HTTP.
    pub nonsense: u64,
    /// A provider sends the head of a response, and its body later.
    pub late_body: u64,
}

/// A change of the gateway while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The config is applied again.
    Reload,
    /// Another process takes over.
    HandOver,
    /// The gateway stops.
    Drain,
    /// The system's time is set, by this many seconds.
    ClockStep(i64),
    /// So few files can be open.
    FewFiles(i32),
    /// Many files can be open again.
    ManyFiles,
    /// Files on the disk may grow by so many bytes.
    FullDisk(u64),
    /// There is room on the disk again.
    FreeDisk,
    /// The power fails, and the gateway is started again.
    PowerCut,
}

/// Everything that a seed decides.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Number of workers.
    pub workers: u64,
    /// The remedies of the flow.
    pub remedies: Remedies,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// Faults of the kernel.
    pub faults: Faults,
    /// Faults of the peers.
    pub trouble: Trouble,
    /// Changes while it runs, by their time.
    pub events: Vec<(Duration, Event)>,
    /// Nothing fails in this world, so everything must succeed.
    pub is_calm: bool,
    /// Time for which names are valid.
    pub ttl: Duration,
    /// Maximum number of exchanges at once. 0 is no limit.
    pub exchanges: u64,
    /// The providers that speak HTTP/2.
    pub is_provider_http2: [bool; 2],
    /// Somebody reads live traffic, so each exchange is recorded.
    pub is_watched: bool,
    /// The users of TLS, and its faults.
    pub tls: TlsPlan,
    /// The content of the disk, and its faults. `None` if nothing is kept there.
    pub disk: Option<DiskPlan>,
    /// The source of all that is decided later.
    pub dice: Dice,
}

impl Scenario {
    /// Draws the scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let scale = if seed.is_multiple_of(3) { Scale::Large } else { Scale::Small };
        let mut dice = Dice::new(seed, scale);
        let is_calm = dice.percent(30);
        let remedies = if dice.percent(25) { Remedies::default() } else { remedies(&mut dice) };
        let mut next_id = 1;
        let count = dice.between(1, 6);
        let clients = (0..count).map(|_| client(&mut dice, is_calm, &mut next_id)).collect();
        let trouble = if is_calm { Trouble::default() } else { trouble(&mut dice) };
        let exchanges = if dice.percent(30) { dice.between(1, 4) } else { 0 };
        let mut scenario = Self {
            workers: dice.pick(&[1, 1, 2]),
            remedies,
            clients,
            faults: faults(&mut dice, is_calm),
            trouble,
            events: if is_calm { Vec::new() } else { events(&mut dice) },
            is_calm,
            ttl: Duration::from_millis(dice.pick(&[0, 500, 5_000, 60_000])),
            exchanges,
            is_provider_http2: [dice.percent(20), dice.percent(20)],
            is_watched: dice.percent(40),
            tls: TlsPlan::default(),
            disk: None,
            dice: dice.split(),
        };
        // Chosen apart from the rest, which is the same with and without them.
        let mut dice = Dice::new(mixed(!seed), scale);
        if seed % 4 == 3 {
            TlsPlan::draw(&mut dice, is_calm).apply(&mut scenario);
        }
        if matches!(seed % 8, 2 | 7) {
            DiskPlan::draw(&mut dice, is_calm).apply(&mut scenario, &mut dice);
        }
        scenario
    }

    /// Returns `true` if some event of this kind is planned.
    pub fn has(&self, is: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, event)| is(event))
    }
}

fn remedies(dice: &mut Dice) -> Remedies {
    let kind =
        dice.pick(&[QuotaKind::Sliding, QuotaKind::Sliding, QuotaKind::Concurrency, QuotaKind::TokenBucket]);
    let limit = dice.between(1, 5);
    Remedies {
        attempts: if dice.percent(50) { dice.between(2, 4) } else { 0 },
        hedges: dice.percent(25),
        caches: dice.percent(30),
        breaks: dice.percent(25),
        limits_time: dice.percent(25),
        concurrency: if dice.percent(25) { dice.between(1, 3) } else { 0 },
        quota: dice.percent(50).then(|| (Quota { kind, limit }, dice.percent(60))),
    }
}

fn client(dice: &mut Dice, is_calm: bool, next_id: &mut u64) -> ClientPlan {
    let count = dice.between(1, 6);
    let requests = (0..count).map(|_| request(dice, next_id)).collect();
    let leave = (!is_calm && dice.percent(20)).then(|| {
        let most = dice.pick(&[100, 1_000, 20_000, 100_000]);
        (dice.between(0, most), dice.pick(&[Leave::Close, Leave::Reset, Leave::Half]))
    });
    let stall = (!is_calm && dice.percent(15))
        .then(|| (dice.between(0, 20_000), Duration::from_millis(dice.between(100, 8_000))));
    ClientPlan {
        after: dice.pause(3_000),
        requests,
        is_http2: dice.percent(25),
        pipelines: dice.percent(20),
        piece: if dice.1 == Scale::Small && !is_calm && dice.percent(20) { 7 } else { dice.room() },
        pause_ms: dice.pick(&[0, 0, 1, 30]),
        room: dice.room(),
        gateway_room: dice.room(),
        read: dice.room(),
        leave,
        stall,
        tls_trouble: 0,
    }
}

fn request(dice: &mut Dice, next_id: &mut u64) -> RequestPlan {
    let id = *next_id;
    *next_id += 1;
    let method = dice.pick(&["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE"]);
    let has_body = matches!(method, "POST" | "PUT");
    RequestPlan {
        id,
        method,
        provider: usize::from(dice.percent(25)),
        shared: (method == "GET" && dice.percent(40)).then(|| dice.between(1, 3)),
        body_len: if has_body { dice.length() } else { 0 },
        chunk: if dice.percent(50) { dice.pick(&[1_000, 5_000, 100_000]) } else { 0 },
        has_key: dice.percent(30),
        think: dice.pause(2_000),
        is_absolute: dice.percent(40),
        is_secured: false,
    }
}

fn trouble(dice: &mut Dice) -> Trouble {
    let mut chance = |most: u64| if dice.percent(50) { dice.between(0, most) } else { 0 };
    Trouble {
        dial: chance(30),
        status: chance(30),
        cut: chance(30),
        stall: chance(15),
        idle_close: chance(40),
        dns: chance(30),
        early: chance(20),
        nonsense: chance(10),
        late_body: chance(40),
    }
}

/// The kernel's legal whims are there in a calm world too. Faults are not.
fn faults(dice: &mut Dice, is_calm: bool) -> Faults {
    let mut chance = |most: u64| if dice.percent(60) { dice.between(0, most) } else { 0 };
    let whims = Faults {
        interrupted: chance(60),
        short_send: chance(200),
        late_event: chance(300),
        spurious_event: chance(200),
        ..Faults::default()
    };
    if is_calm {
        return whims;
    }
    Faults { accept_aborted: chance(50), no_files: chance(20), lossy_reset: chance(1_024), ..whims }
}

fn events(dice: &mut Dice) -> Vec<(Duration, Event)> {
    let mut events = Vec::new();
    let at = |dice: &mut Dice| Duration::from_millis(dice.between(1, 8_000));
    while dice.percent(30) {
        events.push((at(dice), Event::Reload));
    }
    while dice.percent(12) {
        events.push((at(dice), Event::HandOver));
    }
    if dice.percent(20) {
        events.push((at(dice), Event::Drain));
    }
    if dice.percent(10) {
        let seconds = i64::try_from(dice.pick(&[1, 30, 3_600, 100_000])).unwrap_or_default();
        events.push((at(dice), Event::ClockStep(if dice.percent(50) { seconds } else { -seconds })));
    }
    if dice.percent(10) {
        let few = at(dice);
        events.push((few, Event::FewFiles(i32::try_from(dice.between(8, 24)).unwrap_or_default())));
        events.push((few + Duration::from_millis(dice.between(1, 3_000)), Event::ManyFiles));
    }
    events
}
