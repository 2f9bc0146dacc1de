//! Clients of language models that spend a budget in every way: streams that end, break off, are refused at
//! first, are slow enough for a second call, or whose client leaves. The provider's ledger is the judge.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;

use crate::built_in::BuiltIn;
use crate::egret::Egret;
use crate::http::find;
use crate::wait::{DEADLINE, Watched, until_true, until_value};

/// The teams, each with a budget of its own below that of all.
pub const TEAMS: [&str; 4] = ["ada", "bob", "cy", "dot"];

/// The most tokens of output that a call declares.
const OUTPUT_MAX: u64 = 40;

/// The unit of the budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nano-dollars: 1,000,000 for a token of input and ten times as much for one of output.
    Money,
    /// Tokens, of which 300 are held for each call.
    Tokens,
}

/// The number and the order of the calls.
#[derive(Debug, Clone, Copy)]
pub struct Spending {
    /// Unit of the budgets.
    pub unit: Unit,
    /// Seed of what each call does.
    pub seed: u64,
    /// Streams at once.
    pub streams: usize,
    /// Calls of each, one after the other.
    pub calls: usize,
}

/// The gateways of the clients, and the calls so far.
#[derive(Debug)]
pub struct Gateways {
    addresses: Watched<Vec<SocketAddr>>,
    ended: AtomicUsize,
    refused: AtomicUsize,
}

/// The bill of a team, or of all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bill {
    /// Units that the provider has billed.
    pub billed: u64,
    /// The most that a gateway may have charged, which holds nothing any more.
    pub charged_max: u64,
}

impl Unit {
    /// Units for these tokens.
    fn of(self, input: u64, output: u64) -> u64 {
        match self {
            Self::Money => input * 1_000_000 + output * 10_000_000,
            Self::Tokens => input + output,
        }
    }

    /// Units that are held for a call with this body.
    fn held(self, body: &str) -> u64 {
        match self {
            // 64 tokens for the frame, and one for each byte.
            Self::Money => self.of(64 + body.len() as u64, OUTPUT_MAX),
            Self::Tokens => 300,
        }
    }
}

impl Spending {
    /// Number of all calls.
    pub fn count(self) -> usize {
        self.streams * self.calls
    }

    /// The limit of all teams together: it lets about half of the calls through.
    pub fn limit(self) -> u64 {
        match self.unit {
            Unit::Money => 1_000_000_000 * (self.count() as u64).div_ceil(8),
            Unit::Tokens => self.count() as u64 * 25,
        }
    }

    /// The limit of a team: together they have a third more than the limit of all.
    pub fn team_limit(self) -> u64 {
        let share = self.limit() / TEAMS.len() as u64;
        let more = share + share / 3;
        if self.unit == Unit::Money { more / 1_000_000_000 * 1_000_000_000 } else { more }
    }

    /// The config of both budgets and of a flow that repeats and doubles calls and charges them by `remedy`
    /// to the quota `team`. `keys` are further keys of the quotas.
    pub fn flows(self, keys: &str, hedge_after: &str, remedy: &str) -> String {
        let (unit, cost, scale) = match self.unit {
            Unit::Money => ("unit: usd, overshoot: never, ", "usage: usd", 1_000_000_000),
            Unit::Tokens => ("", "request: '300', usage: tokens", 1),
        };
        let quota = |limit: u64| {
            format!("limit: {}, {unit}kind: calendar, period: day, cost: {{ {cost} }}, {keys}", limit / scale)
        };
        let retry = "retry: { attempts: 3, backoff: { base: 5ms }, budget: { ratio: 10 } }";
        let hedge = format!(
            "hedge: {{ after: {hedge_after}, methods: [POST], budget: {{ ratio: 1, min_per_second: 1000 }} }}"
        );
        format!(
            "prices: {{ overrides: {{ m-1: {{ input: 1000, output: 10000 }} }} }}\n\
             quotas:\n  all: {{ {} }}\n  team: {{ {}, group_by: consumer, parent: all }}\n\
             flows: [{{ name: spent, remedies: [{retry}, {hedge}, {remedy}] }}]\n",
            quota(self.limit()),
            quota(self.team_limit()),
        )
    }

    /// The body of a call by this team, of one length for all calls.
    fn body(team: &str, is_streamed: bool) -> String {
        format!(
            "{{\"model\":\"m-1\",\"max_tokens\":{OUTPUT_MAX},\"stream\":{is_streamed:<5},\
             \"stream_options\":{{\"include_usage\":true}},\
             \"messages\":[{{\"role\":\"user\",\"content\":\"{team:>5}\"}}]}}"
        )
    }

    /// Makes all calls.
    pub fn spend(self, gateways: &Gateways) {
        thread::scope(|scope| {
            for stream in 0..self.streams {
                let client = thread::Builder::new().stack_size(256 << 10);
                let spend = move || {
                    let mut random = self.seed << 32 | (stream as u64 + 1);
                    for number in 0..self.calls {
                        call(gateways, stream, number, &mut random);
                    }
                };
                client.spawn_scoped(scope, spend).unwrap();
            }
        });
    }

    /// The bills of all teams and, under an empty name, of all together.
    pub fn bills(self, provider: &BuiltIn) -> BTreeMap<&'static str, Bill> {
        let read = || provider.get("/llm/ledger?last=100000").json();
        let ledger = until_value("all calls have ended", read, |ledger| ledger["under_way"] == 0);
        assert_eq!(ledger["dropped"], 0);
        let calls = ledger["calls"].as_array().unwrap();
        let mut by_call: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for call in calls.iter().filter(|call| call["status"] == 200) {
            by_call.entry(call["consumer"].as_str().unwrap()).or_default().push(call);
        }
        let mut bills: BTreeMap<&'static str, Bill> = BTreeMap::new();
        for (name, made) in by_call {
            let team = TEAMS.into_iter().find(|team| name.starts_with(team)).unwrap();
            let held = self.unit.held(&Self::body(team, true));
            let mut bill = Bill::default();
            for call in &made {
                let tokens = |part: &str| call[part].as_u64().unwrap();
                let billed = self.unit.of(tokens("input"), tokens("output"));
                // Of a call that broke off or whose client left, all that was held is charged.
                let is_settled = call["complete"] == true && call["left"] == false && !name.ends_with("left");
                bill.billed += billed;
                bill.charged_max += if is_settled { billed } else { held.max(billed) };
            }
            for name in [team, ""] {
                let sum = bills.entry(name).or_default();
                sum.billed += bill.billed;
                sum.charged_max += bill.charged_max;
            }
        }
        bills
    }

    /// Asserts that the provider has billed no more than the limits, and prints the figures.
    pub fn assert_within(self, bills: &BTreeMap<&'static str, Bill>, gateways: &Gateways) {
        for (team, bill) in bills {
            let limit = if team.is_empty() { self.limit() } else { self.team_limit() };
            assert!(bill.billed <= limit, "seed {}: {team:?} has {} of {limit}", self.seed, bill.billed);
        }
        let (billed, limit) = (bills.get("").copied().unwrap_or_default().billed, self.limit());
        println!(
            "seed {}: {} calls, {} of them refused, billed {billed} of {limit} ({} %)",
            self.seed,
            gateways.ended(),
            gateways.refused.load(SeqCst),
            billed * 100 / limit
        );
    }

    /// Waits until a gateway charges no more than these bills allow, and what was held for this number of
    /// second calls, whose responses were not used: nothing else is held.
    pub fn assert_nothing_held(
        self,
        egret: &Egret,
        bills: &BTreeMap<&'static str, Bill>,
        second_calls: usize,
    ) {
        let read = || used(egret);
        let given_up = self.unit.held(&Self::body(TEAMS[0], true)) * second_calls as u64;
        let is_settled = |used: &BTreeMap<String, u64>| {
            used.iter().all(|(team, used)| {
                let bill = bills.get(team.as_str()).copied().unwrap_or_default();
                (bill.billed..=bill.charged_max + given_up).contains(used)
            })
        };
        until_value(&format!("nothing is held but {given_up}: {bills:?}"), read, is_settled);
    }
}

/// Units used by each team and, under an empty name, by all together.
pub fn used(egret: &Egret) -> BTreeMap<String, u64> {
    let quotas = egret.control_get("/api/v1/quotas").json();
    let groups =
        quotas["quotas"].as_array().unwrap().iter().flat_map(|quota| quota["groups"].as_array().unwrap());
    groups
        .map(|group| (group["name"].as_str().unwrap().to_owned(), group["used"].as_u64().unwrap()))
        .collect()
}

/// Waits until no call holds units of any budget any more, and asserts that the gateway has charged no more
/// than the limits.
pub fn assert_nothing_reserved(egret: &Egret) {
    let groups = || -> Vec<Value> {
        let quotas = egret.control_get("/api/v1/quotas").json();
        let quotas = quotas["quotas"].as_array().unwrap().iter();
        quotas.flat_map(|quota| quota["groups"].as_array().unwrap()).cloned().collect()
    };
    let is_free = |groups: &Vec<Value>| groups.iter().all(|group| group["reserved"] == 0);
    for group in until_value("no call holds anything", groups, is_free) {
        assert!(group["used"].as_u64() <= group["limit"].as_u64(), "{group}");
    }
}

impl Gateways {
    /// Gateways at these addresses.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        let watched = Watched::default();
        watched.change(|known: &mut Vec<SocketAddr>| *known = addresses);
        Self { addresses: watched, ended: AtomicUsize::default(), refused: AtomicUsize::default() }
    }

    /// Replaces the addresses.
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        self.addresses.change(|known| *known = addresses);
    }

    /// Calls each gateway until it has units to spend.
    pub fn until_served(&self) {
        for number in 0..self.addresses.read(Vec::len) {
            let mut tries = 0;
            until_true("a gateway has units", || {
                tries += 1;
                let name = format!("{}-first-{number}-{tries}", TEAMS[0]);
                let request = |host: SocketAddr| request(host, TEAMS[0], &name, 1, "", true);
                exchange(self.connect(number), &request, false).starts_with(b"HTTP/1.1 200")
            });
        }
    }

    /// Number of calls that have ended.
    pub fn ended(&self) -> usize {
        self.ended.load(SeqCst)
    }

    /// Waits until this number of calls has ended.
    pub fn until_ended(&self, count: usize) {
        until_true(&format!("{count} calls have ended"), || self.ended() >= count);
    }

    /// Connects to one of the gateways. Waits for another address while there is none that accepts.
    fn connect(&self, number: usize) -> TcpStream {
        self.addresses.until("a gateway accepts", |known| {
            let address = known.get(number % known.len().max(1))?;
            TcpStream::connect(address).ok()
        })
    }
}

/// Returns the next random number (xorshift64*).
fn next(random: &mut u64) -> u64 {
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
}

/// Makes a call, whose name in the ledger begins with its team.
fn call(gateways: &Gateways, stream: usize, number: usize, random: &mut u64) {
    let team = TEAMS[stream % TEAMS.len()];
    let output = next(random) % OUTPUT_MAX + 1;
    let kind = next(random) % 10;
    let what = match kind {
        0 => "&refuse=overloaded&refusals=1",
        1 => "&cut_after=2",
        2 | 3 => "&first_event=120ms",
        _ => "",
    };
    let leaves = kind >= 8;
    let end = if leaves { "left" } else { "" };
    let name = format!("{team}-{stream}-{number}-{end}");
    // The head of a stream comes at once, so only responses in one piece are slow enough for a second call.
    let is_streamed = !matches!(kind, 2 | 3);
    let request = |host: SocketAddr| request(host, team, &name, output, what, is_streamed);
    let received = exchange(gateways.connect(stream + number), &request, leaves);
    if received.starts_with(b"HTTP/1.1 402") || received.starts_with(b"HTTP/1.1 429") {
        gateways.refused.fetch_add(1, SeqCst);
    }
    gateways.ended.fetch_add(1, SeqCst);
}

/// A call of a team, with its name in the ledger, the tokens of output, and parameters of the provider.
fn request(host: SocketAddr, team: &str, name: &str, output: u64, what: &str, is_streamed: bool) -> String {
    let body = Spending::body(team, is_streamed);
    format!(
        "POST /llm/v1/chat/completions?output={output}&consumer={name}&tokens_per_second=400{what} HTTP/1.1\r\n\
         host: {host}\r\nconnection: close\r\nx-egret-consumer: {team}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends a request, and receives until the end, or until the client leaves with the first content. A gateway
/// that is killed ends it early.
fn exchange(mut connection: TcpStream, request: &dyn Fn(SocketAddr) -> String, leaves: bool) -> Vec<u8> {
    let mut received = Vec::new();
    let request = request(connection.peer_addr().unwrap());
    connection.set_read_timeout(Some(DEADLINE)).unwrap();
    if connection.write_all(request.as_bytes()).is_err() {
        return received;
    }
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = connection.read(&mut piece) {
        received.extend(&piece[..count]);
        if leaves && find(&received, b"\"content\"").is_some() {
            let _ = SockRef::from(&connection).set_linger(Some(Duration::ZERO));
            break;
        }
    }
    received
}
