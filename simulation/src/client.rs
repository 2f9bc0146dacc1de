//! A client: it sends its requests as its plan says, and checks every byte that it gets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use egret_clock::Moment;
use egret_kernel::outside::{self, EndId, State};

use crate::ledger::{Ledger, Outcome};
use crate::message::{Head, body, chunked};
use crate::reading::Reading;
use crate::scenario::{ClientPlan, Dice, Leave, PROVIDERS, RequestPlan, TOTAL_S};

/// The address of the gateway.
pub const GATEWAY: ([u8; 4], u16) = ([127, 0, 0, 1], 8000);
/// Time beyond the total timeout after which an exchange has outlived it: the gateway's timers are coarse,
/// and a client may be accepted late.
pub const SLACK: Duration = Duration::from_secs(4);
/// Number of connections that a client opens for its requests.
pub const CONNECTIONS_MAX: u32 = 4;

/// A request that was begun.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    index: usize,
    /// Number of bytes of the connection up to the end of its head.
    head_end: u64,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    number: u8,
    plan: ClientPlan,
    /// Its connection.
    pub end: Option<EndId>,
    connections: u32,
    next: usize,
    /// Earliest time of the next request.
    next_at: Moment,
    output: VecDeque<u8>,
    written: u64,
    input: VecDeque<u8>,
    read: u64,
    waiting: VecDeque<Waiting>,
    reading: Option<Reading>,
    stalled_until: Moment,
    is_half: bool,
    /// Time since which the gateway has the head of the first request that waits.
    since: Option<Moment>,
    /// It has nothing more to do.
    pub is_done: bool,
}

impl Client {
    /// Creates a client.
    pub fn new(number: u8, plan: ClientPlan, now: Moment) -> Self {
        Self {
            number,
            next_at: now + plan.after,
            plan,
            end: None,
            connections: 0,
            next: 0,
            output: VecDeque::new(),
            written: 0,
            input: VecDeque::new(),
            read: 0,
            waiting: VecDeque::new(),
            reading: None,
            stalled_until: Moment::from_nanos(0),
            is_half: false,
            since: None,
            is_done: false,
        }
    }

    /// Goes on. Returns the time at which it wants to go on by itself.
    pub fn act(&mut self, now: Moment, dice: &mut Dice, ledger: &mut Ledger) -> Option<Moment> {
        if self.is_done {
            return None;
        }
        let end = match self.end {
            Some(end) => end,
            None => match self.connect(now, dice) {
                Ok(end) => end,
                Err(again) => return again,
            },
        };
        if now < self.stalled_until {
            return Some(self.stalled_until);
        }
        if self.read(end, now, ledger) {
            return self.reconnect(end, now);
        }
        if let Some((after, leave)) = self.plan.leave
            && self.written + self.read >= after
        {
            self.plan.leave = None;
            self.leave(end, leave, ledger);
            if self.is_done {
                return None;
            }
        }
        if let Some((after, time)) = self.plan.stall
            && self.read >= after
            && !self.waiting.is_empty()
        {
            self.plan.stall = None;
            self.stalled_until = now + time;
            return Some(self.stalled_until);
        }
        self.start(now, ledger);
        let again = self.write(end, now, dice);
        if self.waiting.is_empty()
            && self.output.is_empty()
            && (self.next >= self.plan.requests.len() || self.is_half)
        {
            outside::close(end);
            self.is_done = true;
            return None;
        }
        let has_unread = outside::unread(end) > 0;
        let next = (self.waiting.is_empty() && self.next_at > now).then_some(self.next_at);
        let due = self.since.map(|since| since + Duration::from_secs(TOTAL_S) + SLACK);
        [again, has_unread.then_some(now), next, due.filter(|due| *due > now)].into_iter().flatten().min()
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        let waiting: Vec<u64> =
            self.waiting.iter().map(|waiting| self.plan.requests[waiting.index].id).collect();
        format!(
            "{:?}, wrote {} (left {}), read {}, waits for {waiting:?}, {}",
            self.end,
            self.written,
            self.output.len(),
            self.read,
            if self.is_done { "done" } else { "goes on" }
        )
    }

    /// Connects, or returns the time at which it is to be tried, if any.
    fn connect(&mut self, now: Moment, dice: &mut Dice) -> Result<EndId, Option<Moment>> {
        if now < self.next_at {
            return Err(Some(self.next_at));
        }
        if self.next >= self.plan.requests.len() || self.connections == CONNECTIONS_MAX {
            self.is_done = true;
            return Err(None);
        }
        self.connections += 1;
        let port = u16::try_from(dice.between(1_024, 29_999)).unwrap_or(1_024);
        let from = SocketAddr::from(([127, 0, 0, self.number], port));
        self.end = outside::connect(from, SocketAddr::from(GATEWAY), self.plan.room, self.plan.gateway_room);
        (self.written, self.read, self.since) = (0, 0, None);
        self.is_done = self.end.is_none();
        self.end.ok_or(None)
    }

    /// Ends a connection that the gateway has closed, and begins another one for what is left.
    fn reconnect(&mut self, end: EndId, now: Moment) -> Option<Moment> {
        outside::close(end);
        self.end = None;
        self.output.clear();
        self.input.clear();
        self.is_done = self.is_half || self.next >= self.plan.requests.len();
        self.next_at = self.next_at.max(now);
        (!self.is_done).then_some(self.next_at)
    }

    fn leave(&mut self, end: EndId, leave: Leave, ledger: &mut Ledger) {
        match leave {
            Leave::Half => {
                outside::shut(end);
                self.is_half = true;
                self.output.clear();
                return;
            }
            Leave::Close => outside::close(end),
            Leave::Reset => outside::reset(end),
        }
        self.is_done = true;
        for waiting in std::mem::take(&mut self.waiting) {
            ledger.close(self.plan.requests[waiting.index].id, Outcome::Closed);
        }
    }

    /// Begins the next request, if it is time for it.
    fn start(&mut self, now: Moment, ledger: &mut Ledger) {
        while !self.is_half
            && self.next < self.plan.requests.len()
            && self.output.len() < 1_000
            && (self.waiting.is_empty() || self.plan.pipelines)
            && now >= self.next_at
        {
            let plan = &self.plan.requests[self.next];
            ledger.begin(plan);
            let before = self.written + self.output.len() as u64;
            let head = head(plan);
            self.output.extend(head.as_bytes());
            let content = body(plan.id, plan.body_len);
            if plan.body_len > 0 && plan.chunk > 0 {
                self.output.extend(chunked(&content, plan.chunk));
            } else {
                self.output.extend(content);
            }
            self.waiting.push_back(Waiting { index: self.next, head_end: before + head.len() as u64 });
            self.next += 1;
            if let Some(following) = self.plan.requests.get(self.next).filter(|_| !self.plan.pipelines) {
                self.next_at = now + following.think;
            }
        }
    }

    /// Sends a piece. Returns the time of the next one.
    fn write(&mut self, end: EndId, now: Moment, dice: &mut Dice) -> Option<Moment> {
        if self.output.is_empty() || self.is_half {
            self.note_sent(now);
            return None;
        }
        let most = usize::try_from(dice.between(1, self.plan.piece as u64)).unwrap_or(1);
        let piece: Vec<u8> = self.output.iter().copied().take(most).collect();
        match outside::write(end, &piece) {
            None => {
                self.output.clear();
                Some(now)
            }
            Some(sent) => {
                self.output.drain(..sent);
                self.written += sent as u64;
                self.note_sent(now);
                // Long bodies go without pauses, which would last longer than the exchange may.
                let pause_ms = if self.output.len() > 20 * self.plan.piece { 0 } else { self.plan.pause_ms };
                (sent == piece.len() && !self.output.is_empty()).then(|| now + dice.pause(pause_ms))
            }
        }
    }

    fn note_sent(&mut self, now: Moment) {
        if let Some(first) = self.waiting.front()
            && self.written >= first.head_end
        {
            self.since.get_or_insert(now);
        }
    }

    /// Receives. Returns `true` if the connection has ended.
    fn read(&mut self, end: EndId, now: Moment, ledger: &mut Ledger) -> bool {
        let (bytes, state) = outside::read(end, self.plan.read);
        self.read += bytes.len() as u64;
        self.input.extend(bytes);
        if let Err(error) = self.parse(now, ledger) {
            let rest: Vec<u8> = self.input.iter().copied().take(300).collect();
            let rest = String::from_utf8_lossy(&rest);
            ledger.accuse(format!("a client got what is no response: {error}; then {rest:?}"));
            self.waiting.clear();
            return true;
        }
        match state {
            State::Open => self.check_time(end, now, ledger),
            State::Ended | State::Reset => {
                self.close(state == State::Reset, ledger);
                return true;
            }
        }
        false
    }

    fn check_time(&mut self, end: EndId, now: Moment, ledger: &mut Ledger) {
        let Some(since) = self.since else { return };
        if now >= since + Duration::from_secs(TOTAL_S) + SLACK && outside::unread(end) == 0 {
            let id = self.waiting.front().map(|waiting| self.plan.requests[waiting.index].id);
            ledger.accuse(format!("request {id:?} has outlived its time limit of {TOTAL_S} s"));
            self.since = None;
        }
    }

    /// The connection has ended: all requests that wait have their end.
    fn close(&mut self, is_reset: bool, ledger: &mut Ledger) {
        let mut reading = self.reading.take();
        let mut is_first = true;
        self.since = None;
        for waiting in std::mem::take(&mut self.waiting) {
            let id = self.plan.requests[waiting.index].id;
            match reading.take() {
                Some(reading) if reading.reader.is_until_close() && !is_reset => {
                    ledger.close(id, reading.outcome());
                }
                Some(_) => ledger.close(id, Outcome::Cut),
                None if is_first => ledger.close(id, Outcome::Closed),
                None => ledger.forget(id),
            }
            is_first = false;
        }
    }

    fn parse(&mut self, now: Moment, ledger: &mut Ledger) -> Result<(), String> {
        loop {
            if self.reading.is_none() {
                if self.input.is_empty() {
                    return Ok(());
                }
                let Some(waiting) = self.waiting.front().copied() else {
                    return Err("bytes that no request has asked for".to_owned());
                };
                let Some(head) = Head::take(&mut self.input)? else { return Ok(()) };
                let plan = &self.plan.requests[waiting.index];
                // Who has not sent all of a head gets a response to no method.
                let is_head = plan.method == "HEAD" && self.written >= waiting.head_end;
                match Reading::begin(&head, plan, is_head, ledger)? {
                    None => continue,
                    Some(reading) => self.reading = Some(reading),
                }
            }
            let Some(reading) = &mut self.reading else { return Ok(()) };
            if reading.has_body {
                reading.take(&mut self.input)?;
                if !reading.reader.is_complete() {
                    return Ok(());
                }
            }
            self.finish(now, ledger)?;
        }
    }

    fn finish(&mut self, now: Moment, ledger: &mut Ledger) -> Result<(), String> {
        let (Some(reading), Some(waiting)) = (self.reading.take(), self.waiting.pop_front()) else {
            return Ok(());
        };
        let id = self.plan.requests[waiting.index].id;
        self.since = None;
        reading.check_len(ledger)?;
        ledger.close(id, reading.outcome());
        if reading.closes {
            for waiting in std::mem::take(&mut self.waiting) {
                ledger.forget(self.plan.requests[waiting.index].id);
            }
            self.output.clear();
        }
        if let Some(next) = self.waiting.front()
            && self.written >= next.head_end
        {
            self.since = Some(now);
        }
        Ok(())
    }
}

/// The head of a request.
fn head(plan: &RequestPlan) -> String {
    let provider = PROVIDERS[plan.provider];
    let path = plan.path();
    let (target, host) = if plan.is_absolute {
        (format!("http://{provider}.example{path}"), format!("{provider}.example"))
    } else {
        (format!("/{provider}{path}"), "127.0.0.1:8000".to_owned())
    };
    let framing = match (plan.body_len, plan.chunk) {
        (0, _) if plan.method == "POST" || plan.method == "PUT" => "content-length: 0\r\n".to_owned(),
        (0, _) => String::new(),
        (len, 0) => format!("content-length: {len}\r\n"),
        _ => "transfer-encoding: chunked\r\n".to_owned(),
    };
    let key = if plan.has_key { format!("idempotency-key: k{}\r\n", plan.id) } else { String::new() };
    format!("{} {target} HTTP/1.1\r\nhost: {host}\r\nx-id: {}\r\n{key}{framing}\r\n", plan.method, plan.id)
}
