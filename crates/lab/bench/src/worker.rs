//! A thread of the load client: one event loop, its connections, and its counters.
//!
//! An exchange on a kept connection costs one write, one read, one clock reading and a few counter updates.
//! All connections that became ready in the meantime share one wait. Nothing is allocated once every
//! connection has been used.

mod http2;

use std::io::{self, ErrorKind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use rustls::HandshakeKind;

use crate::alarm::Alarm;
use crate::connection::{ConnectionStage, LoadConnection, ReceiveProgress, ResponseReader, SendProgress};
use crate::cpu_usage::CpuUsage;
use crate::pace::Pace;
use crate::plan::{Destination, Plan};
use crate::snapshot::Snapshot;
use crate::tally::{ExchangeTimes, Fault, Tally, micros};
use crate::tls::TlsParameters;
use crate::transport::Transport;

/// Maximum number of events taken from the system at once.
const EVENTS: usize = 1024;

/// Interval of the checks that no event triggers: the request to stop, and exchanges that have timed out.
const TICK: Duration = Duration::from_millis(100);

/// Number of consecutive connection failures that the run tolerates. ab tolerates as many in total.
const CONNECT_FAILURES_MAX: u32 = 10;

/// State shared by all threads of a run.
#[derive(Debug)]
pub(crate) struct RunState {
    /// Asks all threads to stop at once.
    pub stop: AtomicBool,
    /// Number of exchanges assigned to threads.
    claimed: AtomicU64,
    /// Number of exchanges that have ended, per thread: each counter has one writer.
    done: Vec<AtomicU64>,
    /// The counters of each thread, for a picture of the run.
    snapshots: Vec<SnapshotSlot>,
    /// The reason why the run was aborted.
    fatal: Mutex<Option<String>>,
}

/// The place where a thread leaves its counters when they are wanted.
#[derive(Debug, Default)]
struct SnapshotSlot {
    is_wanted: AtomicBool,
    snapshot: Mutex<Snapshot>,
}

impl RunState {
    /// Creates the state for a run of `plan`.
    pub fn new(plan: &Plan) -> Self {
        Self {
            stop: AtomicBool::new(false),
            claimed: AtomicU64::new(0),
            done: (0..plan.threads).map(|_| AtomicU64::new(0)).collect(),
            snapshots: (0..plan.threads).map(|_| SnapshotSlot::default()).collect(),
            fatal: Mutex::new(None),
        }
    }

    /// Number of exchanges that have ended so far.
    pub fn done(&self) -> u64 {
        self.done.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Asks all threads for their counters, which takes them a moment.
    pub fn want_snapshot(&self) {
        self.snapshots.iter().for_each(|slot| slot.is_wanted.store(true, Relaxed));
    }

    /// The counters of all threads as they were when last asked for.
    pub fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot::default();
        for slot in &self.snapshots {
            if let Ok(snapshot) = slot.snapshot.lock() {
                all.add(&snapshot);
            }
        }
        all
    }

    /// The reason why the run was aborted, if it was.
    pub fn fatal(&self) -> Option<String> {
        self.fatal.lock().map_or(None, |fatal| fatal.clone())
    }

    /// Aborts the run.
    fn abort(&self, reason: String) {
        if let Ok(mut fatal) = self.fatal.lock() {
            fatal.get_or_insert(reason);
        }
        self.stop.store(true, Relaxed);
    }
}

/// The result of one thread.
#[derive(Debug)]
pub(crate) struct ThreadResult {
    /// The thread's counters.
    pub tally: Tally,
    /// The thread's use of its processor.
    pub cpu_usage: CpuUsage,
    /// End of the last counted exchange; the start if there was none.
    pub ended: Instant,
    /// The target's software, from the first response's `Server` field.
    pub server: Option<String>,
    /// The negotiated TLS parameters.
    pub tls: Option<TlsParameters>,
}

/// The state of a thread.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    plan: &'a Plan,
    state: &'a RunState,
    index: usize,
    poll: Poll,
    alarm: Alarm,
    /// One connection per slot and destination. A slot runs one exchange at a time.
    connections: Vec<LoadConnection>,
    /// The connections of HTTP/2, if the run speaks it.
    http2: Option<http2::Sessions>,
    reader: ResponseReader,
    tally: Tally,
    tls: Option<TlsParameters>,
    /// Position of the next exchange in the plan's order.
    cursor: usize,
    /// Slots without an exchange.
    idle: Vec<usize>,
    /// Number of exchanges in progress.
    active: usize,
    /// Number of the next exchange of the open model.
    number: u64,
    /// The time for which the alarm is set.
    alarm_at: Option<Instant>,
    /// `true` if the next due exchange has had to wait for a slot.
    is_delayed: bool,
    /// `true` if there are no more exchanges to start.
    exhausted: bool,
    connect_failures: u32,
    /// Earliest start of the first exchange.
    start: Instant,
    /// Start of counting.
    measured_from: Instant,
    /// End of the time in which exchanges are started.
    until: Option<Instant>,
    /// The last clock reading.
    now: Instant,
    ticked: Instant,
    ended: Instant,
}

impl<'a> Worker<'a> {
    /// Prepares thread `index` of a run.
    pub fn new(plan: &'a Plan, state: &'a RunState, index: usize) -> io::Result<Self> {
        let now = Instant::now();
        let poll = Poll::new()?;
        let slots = plan.share(index);
        let alarm = Alarm::new(poll.registry(), Token(usize::MAX))?;
        Ok(Self {
            plan,
            state,
            index,
            poll,
            alarm,
            connections: (0..slots * plan.destinations.len()).map(|_| LoadConnection::new(now)).collect(),
            http2: http2::Sessions::of(plan, slots, now),
            reader: ResponseReader::default(),
            tally: Tally::new(plan.targets, plan.samples_max / plan.threads),
            tls: None,
            // Threads start at different positions, so even a few requests are sent in the right proportion.
            cursor: index * plan.order.len() / plan.threads,
            idle: (0..slots).rev().collect(),
            active: 0,
            number: index as u64,
            alarm_at: None,
            is_delayed: false,
            exhausted: false,
            connect_failures: 0,
            start: now,
            measured_from: now,
            until: None,
            now,
            ticked: now,
            ended: now,
        })
    }

    /// Runs to the end. All threads receive the same `start`.
    pub fn run(mut self, start: Instant) -> io::Result<ThreadResult> {
        let mut cpu_usage = CpuUsage::start();
        let mut events = Events::with_capacity(EVENTS);
        self.start = start;
        self.measured_from = start + self.plan.warmup;
        self.until = self.plan.duration.map(|duration| self.measured_from + duration);
        self.ended = self.measured_from;
        self.now = Instant::now();
        loop {
            self.start_due();
            self.drive();
            if self.is_over() {
                break;
            }
            let timeout = self.timeout()?;
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.now_unless_receiving(&events);
            for event in &events {
                self.on_event(event);
            }
            self.drive();
            self.tick();
        }
        cpu_usage.stop();
        self.tally.unfinished += self.active as u64;
        self.tally.unsent += self.unsent();
        self.tally.event_delays = self.reader.event_delays;
        Ok(ThreadResult {
            tally: self.tally,
            cpu_usage,
            ended: self.ended,
            server: self.reader.server,
            tls: self.tls,
        })
    }

    /// Updates the clock, unless the first event is for a receiving connection: receiving reads the clock
    /// itself.
    #[inline]
    fn now_unless_receiving(&mut self, events: &Events) {
        let receiving = |event: &Event| {
            let connection = self.connections.get(event.token().0);
            connection.is_some_and(|connection| connection.stage == ConnectionStage::Receiving)
        };
        if !events.iter().next().is_some_and(receiving) {
            self.now = Instant::now();
        }
    }

    /// Runs the periodic checks.
    #[inline]
    fn tick(&mut self) {
        if self.now.duration_since(self.ticked) < TICK.min(self.plan.timeout / 4) {
            return;
        }
        self.ticked = self.now;
        self.publish();
        for id in 0..self.connections.len() {
            let connection = &self.connections[id];
            let waits = !matches!(connection.stage, ConnectionStage::Closed | ConnectionStage::Idle);
            if waits && self.now.saturating_duration_since(connection.ready) > self.plan.timeout {
                if self.http2.is_some() {
                    self.fail_stream(id, Fault::Timeout, fault_text(Fault::Timeout, ErrorKind::TimedOut));
                    continue;
                }
                self.fail(id, Fault::Timeout, ErrorKind::TimedOut, None);
            }
        }
    }

    fn publish(&self) {
        self.state.done[self.index].store(self.tally.done, Relaxed);
        let slot = &self.state.snapshots[self.index];
        // Copying the counters takes some ten microseconds, so it is done only for a picture.
        if slot.is_wanted.swap(false, Relaxed)
            && let Ok(mut snapshot) = slot.snapshot.lock()
        {
            *snapshot = Snapshot::of(&self.tally);
        }
    }

    /// Returns `true` if all exchanges have ended or the time is over.
    fn is_over(&mut self) -> bool {
        if self.state.stop.load(Relaxed) {
            return true;
        }
        if let Some(until) = self.until
            && self.now >= until
        {
            self.exhausted = true;
            // Exchanges in progress were due. The open model waits for them, because leaving them out would
            // hide a stall.
            let waits = matches!(self.plan.pace, Pace::Open(_)) && self.now < until + self.plan.timeout;
            return self.active == 0 || !waits;
        }
        self.exhausted && self.active == 0
    }

    /// Number of exchanges of the open model that were due before the time was over but found no free
    /// connection. For a run that was stopped, the time was over at that moment; exchanges due later do not
    /// count.
    fn unsent(&self) -> u64 {
        let (Pace::Open(rate), Some(duration)) = (self.plan.pace, self.plan.duration) else { return 0 };
        let whole = self.plan.warmup + duration;
        let is_stopped = self.state.stop.load(Relaxed);
        let end = if is_stopped { whole.min(self.now.duration_since(self.start)) } else { whole };
        let before_end = |number: u64| rate.due(number) < end;
        // Due times increase with the number, so a binary search finds the first one after the end.
        let (mut low, mut high) = (self.number, self.number.max(1));
        while before_end(high) {
            high = high.saturating_mul(2);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if before_end(middle) { low = middle + 1 } else { high = middle }
        }
        let left =
            self.plan.count.map_or(u64::MAX, |count| count.saturating_sub(self.state.claimed.load(Relaxed)));
        ((low - self.number) / self.plan.threads as u64).min(left)
    }

    /// Duration of the next wait for events.
    fn timeout(&mut self) -> io::Result<Duration> {
        let tick = TICK.min(self.plan.timeout / 4);
        let until = self.until.filter(|_| !self.exhausted);
        let longest = until.map_or(tick, |until| tick.min(until.saturating_duration_since(self.now)));
        let Some(due) = self.next_due() else { return Ok(longest) };
        if self.idle.is_empty() {
            return Ok(longest);
        }
        // The clock was last read before the requests were sent.
        let after = due.saturating_duration_since(Instant::now());
        if self.alarm_at != Some(due) {
            self.alarm.set(after)?;
            self.alarm_at = Some(due);
        }
        Ok(Alarm::timeout(after, longest))
    }

    /// Due time of the next exchange that does not wait for another one to end.
    fn next_due(&self) -> Option<Instant> {
        if self.exhausted {
            return None;
        }
        match self.plan.pace {
            Pace::Open(rate) => self.start.checked_add(rate.due(self.number)),
            Pace::Closed { ramp_up } => {
                let slots = self.connections.len() / self.plan.destinations.len();
                let started = u32::try_from(slots - self.idle.len()).unwrap_or(u32::MAX);
                (!self.idle.is_empty())
                    .then(|| self.start + ramp_up * started / u32::try_from(slots).unwrap_or(u32::MAX).max(1))
            }
        }
    }

    /// Starts all due exchanges for which there are free slots.
    #[inline]
    fn start_due(&mut self) {
        while let Some(due) = self.next_due().filter(|due| *due <= self.now) {
            let open = matches!(self.plan.pace, Pace::Open(_));
            if open && self.until.is_some_and(|until| due >= until) {
                self.exhausted = true;
                return;
            }
            let Some(slot) = self.idle.pop() else {
                self.is_delayed = true;
                return;
            };
            let started = if open { due } else { self.now };
            if !self.claim(started) {
                self.idle.push(slot);
                return;
            }
            if open {
                self.number += self.plan.threads as u64;
                if !self.is_delayed {
                    self.tally.lateness.record(micros(self.now - due));
                }
            }
            self.is_delayed = false;
            self.begin(slot, started);
        }
    }

    /// Claims one of the remaining exchanges. Exchanges before counting starts do not use up the count.
    #[inline]
    fn claim(&mut self, started: Instant) -> bool {
        let Some(count) = self.plan.count else { return true };
        if started < self.measured_from {
            return true;
        }
        self.exhausted |= self.state.claimed.fetch_add(1, Relaxed) >= count;
        !self.exhausted
    }

    /// Starts the next exchange in a slot.
    #[inline]
    fn begin(&mut self, slot: usize, started: Instant) {
        let request = self.plan.order[self.cursor];
        self.cursor = if self.cursor + 1 == self.plan.order.len() { 0 } else { self.cursor + 1 };
        let destination = self.plan.requests[request].destination;
        let id = slot * self.plan.destinations.len() + destination;
        self.active += 1;
        self.connections[id].begin(request, started, self.now);
        self.connections[id].response.is_counted = started >= self.measured_from;
        if self.http2.is_some() {
            return self.begin_stream(id);
        }
        if self.connections[id].transport.is_some() {
            self.send(id);
        } else {
            self.open(id);
        }
    }

    /// Starts connecting.
    fn open(&mut self, id: usize) {
        let destination = &self.plan.destinations[id % self.plan.destinations.len()];
        let opened = Transport::connect(destination.address, self.plan.socket).and_then(|mut transport| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(transport.socket(), Token(id), interest)?;
            // A body of several packets must not wait for the acknowledgement of the first packet.
            transport.socket().set_nodelay(true)?;
            Ok(transport)
        });
        let connection = &mut self.connections[id];
        connection.ready = self.now;
        match opened {
            Ok(transport) => {
                connection.transport = Some(transport);
                connection.stage = ConnectionStage::Connecting;
            }
            Err(error) => self.fail(id, Fault::Connect, error.kind(), Some(&error)),
        }
    }

    #[inline]
    fn on_event(&mut self, event: &Event) {
        let id = event.token().0;
        let Some(connection) = self.connections.get_mut(id) else { return self.on_session_event(id) };
        match connection.stage {
            ConnectionStage::Receiving => {}
            // Only the end of the connection is expected on an idle connection.
            ConnectionStage::Idle if event.is_readable() || event.is_read_closed() => {
                return connection.close();
            }
            ConnectionStage::Idle | ConnectionStage::Closed => return,
            ConnectionStage::Sending => self.send(id),
            ConnectionStage::Connecting | ConnectionStage::Tunnelling | ConnectionStage::Handshaking => {
                return self.prepare(id);
            }
        }
        let closing = event.is_read_closed() || event.is_error();
        if (event.is_readable() || closing) && self.is_exchanging(id) {
            self.receive(id, closing);
        }
    }

    fn is_exchanging(&self, id: usize) -> bool {
        matches!(self.connections[id].stage, ConnectionStage::Sending | ConnectionStage::Receiving)
    }

    /// Advances a new connection as far as possible: connected, tunnelled, encrypted, request sent.
    fn prepare(&mut self, id: usize) {
        self.now = Instant::now();
        match self.prepared(id) {
            Ok(false) => {}
            Ok(true) => {
                self.connect_failures = 0;
                let connection = &mut self.connections[id];
                connection.connect = self.now - connection.ready;
                connection.ready = self.now;
                connection.restart();
                if let Some(session) = connection.transport.as_ref().and_then(Transport::session) {
                    let is_counted = connection.started >= self.measured_from;
                    let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
                    self.tally.resumed += u64::from(is_counted && is_resumed);
                    self.tls.get_or_insert_with(|| TlsParameters::of(session));
                }
                self.send(id);
            }
            Err(error) => self.fail(id, Fault::Connect, error.kind(), Some(&error)),
        }
    }

    /// Returns `true` if the connection is ready for a request.
    fn prepared(&mut self, id: usize) -> io::Result<bool> {
        let destination = &self.plan.destinations[id % self.plan.destinations.len()];
        prepared(&mut self.connections[id], destination, &mut self.reader)
    }

    #[inline]
    fn send(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        match connection.send(&self.plan.requests[connection.request].bytes) {
            Ok(SendProgress::All) => connection.stage = ConnectionStage::Receiving,
            Ok(SendProgress::Part) => connection.stage = ConnectionStage::Sending,
            Err(error) => self.fail(id, Fault::Send, error.kind(), None),
        }
    }

    #[inline]
    fn receive(&mut self, id: usize, closing: bool) {
        let connection = &mut self.connections[id];
        match connection.receive(&mut self.reader, self.plan, closing) {
            // A long body must not stop the clock.
            ReceiveProgress::Part => self.now = Instant::now(),
            ReceiveProgress::Whole { at, kept } => self.finish(id, at, kept),
            ReceiveProgress::Failed(fault, kind) => self.fail(id, fault, kind, None),
        }
    }

    /// Ends an exchange whose response is complete, and starts the next one.
    #[inline]
    fn finish(&mut self, id: usize, at: Instant, kept: bool) {
        self.now = at;
        let connection = &mut self.connections[id];
        // If the response arrived before the request was sent completely, the connection is not reusable.
        if kept && connection.stage == ConnectionStage::Receiving {
            connection.stage = ConnectionStage::Idle;
        } else {
            connection.close();
        }
        let connection = &self.connections[id];
        if connection.started >= self.measured_from {
            let request = &self.plan.requests[connection.request];
            let response = &connection.response;
            if let Some(status) = response.status {
                self.tally.status(status);
            }
            self.tally.keep_alive += u64::from(kept);
            self.tally.bytes_body += response.bytes_body;
            let same_length = self.plan.variable_length || request.length.agrees(response.bytes_body);
            if !(same_length && response.passes) {
                self.tally.failed += 1;
                let (fault, text) = if response.passes {
                    (Fault::Length, "the body is not as long as that of the first response")
                } else {
                    (Fault::Check, "the response does not meet the requirements")
                };
                self.tally.fault(fault, text.to_owned());
            }
            self.record(id, at);
        }
        self.next(id);
    }

    /// Counts an exchange and its times.
    #[inline]
    fn record(&mut self, id: usize, at: Instant) {
        let connection = &self.connections[id];
        let request = &self.plan.requests[connection.request];
        let times = ExchangeTimes {
            connect: connection.fresh.then(|| micros(connection.connect)),
            wait: micros(
                connection.response.first_byte.unwrap_or(at).saturating_duration_since(connection.ready),
            ),
            total: micros(at.saturating_duration_since(connection.started)),
            is_2xx: connection.response.status.is_some_and(|status| status / 100 == 2),
        };
        self.tally.record(request.target, connection.started - self.measured_from, times);
        self.tally.bytes_received += connection.response.bytes;
        self.tally.bytes_sent += request.bytes.len() as u64;
        self.tally.done += 1;
        self.ended = at;
    }

    /// Uses a slot that has become free.
    #[inline]
    fn next(&mut self, id: usize) {
        self.active -= 1;
        let slot = id / self.plan.destinations.len();
        if let Pace::Open(_) = self.plan.pace {
            self.idle.push(slot);
            return self.start_due();
        }
        let over = self.exhausted || self.until.is_some_and(|until| self.now >= until);
        if over || self.state.stop.load(Relaxed) || !self.claim(self.now) {
            self.exhausted = true;
            return;
        }
        self.begin(slot, self.now);
    }

    /// Ends a failed exchange. If only a kept connection had been closed in the meantime, starts the exchange
    /// again on a new connection.
    #[cold]
    fn fail(&mut self, id: usize, fault: Fault, kind: ErrorKind, error: Option<&io::Error>) {
        self.now = Instant::now();
        let connection = &mut self.connections[id];
        let stale = !connection.fresh && connection.response.is_empty();
        connection.close();
        if stale && matches!(fault, Fault::Send | Fault::Receive | Fault::Closed) {
            connection.fresh = true;
            self.tally.retried += 1;
            return self.open(id);
        }
        if connection.started >= self.measured_from {
            let text = error.map_or_else(|| fault_text(fault, kind), ToString::to_string);
            self.tally.fault(fault, text);
            self.tally.failed += 1;
            // The exchange took at least this long. Leaving it out would make a slow provider look fast.
            if fault == Fault::Timeout {
                self.record(id, self.now);
            } else {
                self.tally.done += 1;
                self.ended = self.now;
            }
        }
        match fault {
            // The exchanges of a connection of HTTP/2 fail together.
            Fault::Connect if self.http2.is_none() => self.connect_failed(id, kind, error),
            Fault::Receive if self.plan.stop_on_receive_error => {
                let done = self.tally.done;
                self.state.abort(format!(
                    "receiving failed: {kind}. Total of {done} requests completed; use -r to continue after errors"
                ));
            }
            _ => {}
        }
        self.next(id);
    }

    /// Counts a connection that could not be opened. `connection` is its number.
    fn connect_failed(&mut self, connection: usize, kind: ErrorKind, error: Option<&io::Error>) {
        self.connect_failures += 1;
        if self.connect_failures <= CONNECT_FAILURES_MAX {
            return;
        }
        let address = self.plan.destinations[connection % self.plan.destinations.len()].address;
        let reason = error.map_or_else(|| kind.to_string(), ToString::to_string);
        let advice = match kind {
            ErrorKind::ConnectionRefused => "nothing listens there: is it running, and is the port right?",
            ErrorKind::AddrNotAvailable => {
                "this machine has no local port left: keep connections open with -k"
            }
            ErrorKind::InvalidData => {
                "does the target use TLS, and is its certificate trusted? use --cacert to trust its authority, or --insecure to trust any"
            }
            _ => "check that it can be reached from here",
        };
        self.state.abort(format!(
            "cannot connect to {address}: {reason} ({} failures in a row); {advice}",
            self.connect_failures
        ));
    }
}

/// Advances a new connection as far as possible. Returns `true` if it is ready for a request.
fn prepared(
    connection: &mut LoadConnection,
    destination: &Destination,
    reader: &mut ResponseReader,
) -> io::Result<bool> {
    loop {
        let Some(transport) = &mut connection.transport else {
            return Err(ErrorKind::NotConnected.into());
        };
        match connection.stage {
            ConnectionStage::Connecting => {
                if let Some(error) = transport.socket().take_error()? {
                    return Err(error);
                }
                // An event can arrive before the connection has succeeded or failed.
                if let Err(error) = transport.socket().peer_addr() {
                    return if error.kind() == ErrorKind::NotConnected { Ok(false) } else { Err(error) };
                }
                connection.stage = ConnectionStage::Tunnelling;
                if let Some(request) = &destination.tunnel
                    && connection.send(request)? == SendProgress::Part
                {
                    return Err(io::Error::other("the proxy does not accept the CONNECT request"));
                }
            }
            ConnectionStage::Tunnelling => {
                if destination.tunnel.is_some() && !connection.receive_tunnel(reader)? {
                    return Ok(false);
                }
                let Some((config, name)) = &destination.tls else { return Ok(true) };
                let transport = connection.transport.take();
                connection.transport =
                    transport.map(|transport| transport.secure(config, name)).transpose()?;
                connection.stage = ConnectionStage::Handshaking;
            }
            _ => return transport.handshake(),
        }
    }
}

/// Describes a failure for which the system has no words of its own.
fn fault_text(fault: Fault, kind: ErrorKind) -> String {
    match fault {
        Fault::Closed => "the connection was closed before the response was complete".to_owned(),
        Fault::Timeout => "no complete response in time".to_owned(),
        Fault::Protocol => "the response is not HTTP/1.1".to_owned(),
        _ => kind.to_string(),
    }
}
