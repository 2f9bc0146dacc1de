//! A client: it sends its requests as its plan says, and checks every byte that it gets.

use std::collections::VecDeque;

use egret_clock::Moment;

use crate::caller::{Caller, target};
use crate::ledger::{Ledger, Outcome};
use crate::link::{Link, LinkState};
use crate::message::{Head, body, chunked};
use crate::reading::Reading;
use crate::scenario::{Dice, Leave, RequestPlan};

/// A request that was begun.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    index: usize,
    /// Number of bytes of the connection up to the end of its head.
    head_end: u64,
}

/// A client.
pub struct Client {
    /// The part that it has in common with other clients.
    pub caller: Caller,
    /// Its connection.
    pub link: Option<Link>,
    output: VecDeque<u8>,
    written: u64,
    input: VecDeque<u8>,
    read: u64,
    waiting: VecDeque<Waiting>,
    reading: Option<Reading>,
    is_half: bool,
    /// Time since which the gateway has the head of the first request that waits.
    since: Option<Moment>,
}

impl Client {
    /// Creates a client.
    pub fn new(caller: Caller) -> Self {
        Self {
            caller,
            link: None,
            output: VecDeque::new(),
            written: 0,
            input: VecDeque::new(),
            read: 0,
            waiting: VecDeque::new(),
            reading: None,
            is_half: false,
            since: None,
        }
    }

    /// Goes on. Returns the time at which it wants to go on by itself.
    pub fn act(&mut self, now: Moment, dice: &mut Dice, ledger: &mut Ledger) -> Option<Moment> {
        if self.caller.is_done {
            return None;
        }
        let mut link = match self.link.take() {
            Some(link) => link,
            None => match self.caller.connect(now, dice) {
                Ok(link) => {
                    (self.written, self.read, self.since) = (0, 0, None);
                    link
                }
                Err(again) => return again,
            },
        };
        if now < self.caller.stalled_until {
            self.link = Some(link);
            return Some(self.caller.stalled_until);
        }
        if self.read(&mut link, now, ledger) {
            return self.reconnect(link, now);
        }
        if let Some(leave) = self.caller.leaves(self.written + self.read) {
            self.leave(&mut link, leave, ledger);
            if self.caller.is_done {
                return None;
            }
        }
        if !self.waiting.is_empty()
            && let Some(until) = self.caller.stalls(self.read, now)
        {
            self.link = Some(link);
            return Some(until);
        }
        self.start(&link, now, ledger);
        let again = self.write(&mut link, now, dice);
        if self.waiting.is_empty() && self.output.is_empty() && (!self.caller.has_more() || self.is_half) {
            link.close(true);
            self.caller.is_done = true;
            return None;
        }
        let has_unread = link.unread() > 0;
        let next_at = self.caller.next_at;
        let next = (self.waiting.is_empty() && next_at > now).then_some(next_at);
        let due = self.since.map(Caller::due).filter(|due| *due > now);
        let link_due = link.due();
        self.link = Some(link);
        [again, has_unread.then_some(now), next, due, link_due].into_iter().flatten().min()
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        format!(
            "{:?}, wrote {} (left {}), read {}, waits for {:?}, {}",
            self.link.as_ref().map(|link| link.end),
            self.written,
            self.output.len(),
            self.read,
            self.caller.ids(self.waiting.iter().map(|waiting| waiting.index)),
            if self.caller.is_done { "done" } else { "goes on" }
        )
    }

    /// Ends a connection that the gateway has closed, and begins another one for what is left.
    fn reconnect(&mut self, mut link: Link, now: Moment) -> Option<Moment> {
        link.close(false);
        self.output.clear();
        self.input.clear();
        let caller = &mut self.caller;
        caller.is_done = self.is_half || !caller.has_more();
        caller.next_at = caller.next_at.max(now);
        (!caller.is_done).then_some(caller.next_at)
    }

    fn leave(&mut self, link: &mut Link, leave: Leave, ledger: &mut Ledger) {
        match leave {
            Leave::Half => {
                link.shut();
                self.is_half = true;
                self.output.clear();
                return;
            }
            Leave::Close => {
                link.close(false);
            }
            Leave::Reset => link.reset(),
        }
        self.caller.is_done = true;
        for waiting in std::mem::take(&mut self.waiting) {
            ledger.close(self.caller.plan.requests[waiting.index].id, Outcome::Closed);
        }
    }

    /// Begins the next request, if it is time for it.
    fn start(&mut self, link: &Link, now: Moment, ledger: &mut Ledger) {
        let caller = &mut self.caller;
        let pipelines = caller.plan.pipelines;
        while !self.is_half
            && caller.has_more()
            && self.output.len() < 1_000
            && (self.waiting.is_empty() || pipelines)
            && now >= caller.next_at
        {
            let plan = &caller.plan.requests[caller.next];
            ledger.begin(plan);
            let before = self.written + self.output.len() as u64;
            let head = head(plan, link.is_secured());
            self.output.extend(head.as_bytes());
            let content = body(plan.id, plan.body_len);
            if plan.body_len > 0 && plan.chunk > 0 {
                self.output.extend(chunked(&content, plan.chunk));
            } else {
                self.output.extend(content);
            }
            self.waiting.push_back(Waiting { index: caller.next, head_end: before + head.len() as u64 });
            caller.next += 1;
            if let Some(following) = caller.plan.requests.get(caller.next).filter(|_| !pipelines) {
                caller.next_at = now + following.think;
            }
        }
    }

    /// Sends a piece. Returns the time of the next one.
    fn write(&mut self, link: &mut Link, now: Moment, dice: &mut Dice) -> Option<Moment> {
        if self.output.is_empty() || self.is_half {
            self.note_sent(link, now);
            return None;
        }
        let plan = &self.caller.plan;
        let most = usize::try_from(dice.between(1, plan.piece as u64)).unwrap_or(1);
        let piece: Vec<u8> = self.output.iter().copied().take(most).collect();
        match link.write(&piece) {
            None => {
                self.output.clear();
                Some(now)
            }
            Some(sent) => {
                self.output.drain(..sent);
                self.written += sent as u64;
                // Long bodies go without pauses, which would last longer than the exchange may.
                let pause_ms = if self.output.len() > 20 * plan.piece { 0 } else { plan.pause_ms };
                self.note_sent(link, now);
                (sent == piece.len() && !self.output.is_empty()).then(|| now + dice.pause(pause_ms))
            }
        }
    }

    /// Returns `true` if the gateway can have all of a request's head.
    fn is_sent(&self, link: &Link, waiting: Waiting) -> bool {
        self.written - link.held() >= waiting.head_end
    }

    fn note_sent(&mut self, link: &Link, now: Moment) {
        if self.waiting.front().is_some_and(|first| self.is_sent(link, *first)) {
            self.since.get_or_insert(now);
        }
    }

    /// Receives. Returns `true` if the connection has ended.
    fn read(&mut self, link: &mut Link, now: Moment, ledger: &mut Ledger) -> bool {
        let (bytes, state) = link.read(self.caller.plan.read);
        self.read += bytes.len() as u64;
        self.input.extend(bytes);
        if let Some(violation) = link.violation.take() {
            ledger.accuse(violation);
        }
        if let Err(error) = self.parse(link, now, ledger) {
            let rest: Vec<u8> = self.input.iter().copied().take(300).collect();
            let rest = String::from_utf8_lossy(&rest);
            ledger.accuse(format!("a client got what is no response: {error}; then {rest:?}"));
            self.waiting.clear();
            return true;
        }
        match state {
            LinkState::Open => self.check_time(link, now, ledger),
            LinkState::Ended | LinkState::Cut | LinkState::Reset => {
                self.close(state != LinkState::Ended, ledger);
                return true;
            }
        }
        false
    }

    fn check_time(&mut self, link: &Link, now: Moment, ledger: &mut Ledger) {
        let Some(since) = self.since else { return };
        if now >= Caller::due(since) && link.unread() == 0 {
            self.caller.accuse_late(self.waiting.front().map(|waiting| waiting.index), ledger);
            self.since = None;
        }
    }

    /// The connection has ended: all requests that wait have their end.
    fn close(&mut self, is_cut: bool, ledger: &mut Ledger) {
        let mut reading = self.reading.take();
        let mut is_first = true;
        self.since = None;
        for waiting in std::mem::take(&mut self.waiting) {
            let id = self.caller.plan.requests[waiting.index].id;
            match reading.take() {
                Some(reading) if reading.reader.is_until_close() && !is_cut => {
                    ledger.close(id, reading.outcome());
                }
                Some(_) => ledger.close(id, Outcome::Cut),
                None if is_first => ledger.close(id, Outcome::Closed),
                None => ledger.forget(id),
            }
            is_first = false;
        }
    }

    fn parse(&mut self, link: &Link, now: Moment, ledger: &mut Ledger) -> Result<(), String> {
        loop {
            if self.reading.is_none() {
                if self.input.is_empty() {
                    return Ok(());
                }
                let Some(waiting) = self.waiting.front().copied() else {
                    return Err("bytes that no request has asked for".to_owned());
                };
                let Some(head) = Head::take(&mut self.input)? else { return Ok(()) };
                let plan = &self.caller.plan.requests[waiting.index];
                // Who has not sent all of a head gets a response to no method.
                let is_head = plan.method == "HEAD" && self.is_sent(link, waiting);
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
            self.finish(link, now, ledger)?;
        }
    }

    fn finish(&mut self, link: &Link, now: Moment, ledger: &mut Ledger) -> Result<(), String> {
        let (Some(reading), Some(waiting)) = (self.reading.take(), self.waiting.pop_front()) else {
            return Ok(());
        };
        let id = self.caller.plan.requests[waiting.index].id;
        self.since = None;
        reading.check_len(ledger)?;
        ledger.close(id, reading.outcome());
        if reading.closes {
            for waiting in std::mem::take(&mut self.waiting) {
                ledger.forget(self.caller.plan.requests[waiting.index].id);
            }
            self.output.clear();
        }
        if self.waiting.front().is_some_and(|next| self.is_sent(link, *next)) {
            self.since = Some(now);
        }
        Ok(())
    }
}

/// The head of a request.
fn head(plan: &RequestPlan, has_tls: bool) -> String {
    let (scheme, host, path) = target(plan, has_tls);
    let target = if plan.is_absolute { format!("{scheme}://{host}{path}") } else { path };
    let framing = match (plan.body_len, plan.chunk) {
        (0, _) if plan.method == "POST" || plan.method == "PUT" => "content-length: 0\r\n".to_owned(),
        (0, _) => String::new(),
        (len, 0) => format!("content-length: {len}\r\n"),
        _ => "transfer-encoding: chunked\r\n".to_owned(),
    };
    let key = if plan.has_key { format!("idempotency-key: k{}\r\n", plan.id) } else { String::new() };
    format!("{} {target} HTTP/1.1\r\nhost: {host}\r\nx-id: {}\r\n{key}{framing}\r\n", plan.method, plan.id)
}
