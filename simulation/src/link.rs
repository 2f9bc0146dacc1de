//! A peer's end of a connection, in clear or over TLS, with the faults of TLS.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write};
use std::sync::Arc;
use std::time::Duration;

use egret_clock::{Moment, Timestamp, system_time};
use egret_kernel::outside::{self, EndId, State};
use rustls::pki_types::{IpAddr, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, HandshakeKind, ServerConfig, ServerConnection};

use crate::scenario::Dice;

/// The state of a connection, as a peer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Bytes have arrived, or may arrive.
    Open,
    /// The gateway sends no more, and has said so.
    Ended,
    /// The gateway sends no more. Over TLS it would have said so, if that was the end.
    Cut,
    /// The connection was reset, or its TLS has failed.
    Reset,
}

/// A thing that goes wrong with TLS.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The connection ends in the middle of a record, without a word.
    Close,
    Reset,
    /// An alert, in clear, with this number (RFC 8446 §6).
    Alert(u8),
    /// A record that nobody can decrypt.
    Garbage,
    Stall(Duration),
}

/// Maximum number of bytes of a record before it is encrypted (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;

/// Alerts that a peer may send at any time.
const ALERTS: [u8; 8] = [0, 20, 40, 42, 45, 48, 80, 112];

/// The TLS of a connection.
struct Secured {
    tls: Connection,
    /// Decrypted bytes that were not read.
    plain: VecDeque<u8>,
    /// Number of bytes, of those written last, that may not have left.
    held: u64,
    /// Number of encrypted bytes that were sent.
    sent: u64,
    /// A fault after this number of encrypted bytes.
    fault: Option<(u64, Fault)>,
    stalled_until: Moment,
    /// The system's time at which the first bytes arrived.
    began: Option<Timestamp>,
    /// The time at which the certificate expires.
    expires: Timestamp,
    has_ended: bool,
    is_cut: bool,
    is_lost: bool,
}

/// A peer's end of a connection.
pub struct Link {
    /// The end.
    pub end: EndId,
    tls: Option<Box<Secured>>,
    /// A rule of TLS that the gateway has broken.
    pub violation: Option<String>,
}

impl Link {
    /// A connection in clear.
    pub fn plain(end: EndId) -> Self {
        Self { end, tls: None, violation: None }
    }

    /// A client's connection over TLS.
    pub fn client(end: EndId, config: Arc<ClientConfig>) -> Self {
        let gateway = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from([127, 0, 0, 1])));
        let connection = ClientConnection::new(config, gateway).map(Connection::from);
        Self::secured(end, connection, Timestamp::NEVER)
    }

    /// A provider's connection over TLS, with a certificate that expires then.
    pub fn server(end: EndId, config: Arc<ServerConfig>, expires: Timestamp) -> Self {
        Self::secured(end, ServerConnection::new(config).map(Connection::from), expires)
    }

    fn secured(end: EndId, connection: Result<Connection, rustls::Error>, expires: Timestamp) -> Self {
        let tls = match connection {
            Ok(tls) => tls,
            Err(error) => {
                let violation = Some(format!("TLS of the simulation is not valid: {error}"));
                return Self { end, tls: None, violation };
            }
        };
        let secured = Secured {
            tls,
            plain: VecDeque::new(),
            held: 0,
            sent: 0,
            fault: None,
            stalled_until: Moment::from_nanos(0),
            began: None,
            expires,
            has_ended: false,
            is_cut: false,
            is_lost: false,
        };
        Self { end, tls: Some(Box::new(secured)), violation: None }
    }

    /// Plans a fault of TLS with this chance, mostly in the handshake.
    #[must_use]
    pub fn troubled(mut self, dice: &mut Dice, chance: u64) -> Self {
        if let Some(secured) = &mut self.tls
            && dice.percent(chance)
        {
            let most = if dice.percent(60) { 1_200 } else { 20_000 };
            let fault = match dice.between(0, 4) {
                0 => Fault::Close,
                1 => Fault::Reset,
                2 => Fault::Alert(dice.pick(&ALERTS)),
                3 => Fault::Garbage,
                _ => Fault::Stall(Duration::from_millis(dice.between(1, 14_000))),
            };
            secured.fault = Some((dice.between(0, most), fault));
        }
        self
    }

    /// Returns `true` if it has TLS.
    pub fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns `true` if the provider's certificate has expired before it was shown, and the handshake was a
    /// whole one: the gateway must not have accepted it.
    pub fn has_expired(&self) -> bool {
        let Some(secured) = &self.tls else { return false };
        let is_whole = secured.tls.handshake_kind() != Some(HandshakeKind::Resumed);
        is_whole
            && secured.began.is_some_and(|began| began > secured.expires)
            && system_time() > secured.expires
    }

    /// Number of bytes that were written, and that the gateway cannot have decrypted yet.
    pub fn held(&self) -> u64 {
        self.tls.as_ref().filter(|secured| secured.tls.wants_write()).map_or(0, |secured| secured.held)
    }

    /// The time at which it goes on by itself.
    pub fn due(&self) -> Option<Moment> {
        self.tls.as_ref().map(|secured| secured.stalled_until).filter(|until| *until > Moment::now())
    }

    /// Number of bytes that have arrived and were not read.
    pub fn unread(&self) -> usize {
        outside::unread(self.end) + self.tls.as_ref().map_or(0, |secured| secured.plain.len())
    }

    /// Receives about `most` bytes.
    pub fn read(&mut self, most: usize) -> (Vec<u8>, LinkState) {
        let (bytes, state) = self.receive(most);
        let Some(secured) = &mut self.tls else {
            let state = match state {
                State::Open => LinkState::Open,
                State::Ended => LinkState::Ended,
                State::Reset => LinkState::Reset,
            };
            return (bytes, state);
        };
        let count = most.min(secured.plain.len());
        let bytes = secured.plain.drain(..count).collect();
        let state = match state {
            _ if !secured.plain.is_empty() => LinkState::Open,
            _ if secured.has_ended => LinkState::Ended,
            State::Reset => LinkState::Reset,
            _ if secured.is_lost => LinkState::Reset,
            _ if secured.is_cut => LinkState::Cut,
            State::Open | State::Ended => LinkState::Open,
        };
        (bytes, state)
    }

    /// Goes on with a handshake, if there is one under way.
    pub fn shake_hands(&mut self, most: usize) {
        if self.tls.as_ref().is_some_and(|secured| secured.tls.is_handshaking()) {
            self.receive(most);
        }
    }

    /// Receives bytes, and decrypts them over TLS. Only those in clear are returned.
    fn receive(&mut self, most: usize) -> (Vec<u8>, State) {
        let Some(secured) = &mut self.tls else { return outside::read(self.end, most) };
        secured.flush(self.end);
        let (bytes, state) = outside::read(self.end, most);
        if !secured.is_lost
            && let Err(error) = secured.decrypt(&bytes, state)
        {
            // An alert says so.
            secured.flush(self.end);
            secured.is_lost = true;
            // The gateway may refuse, with an alert.
            if !matches!(error, rustls::Error::AlertReceived(_)) {
                self.violation = Some(format!("the gateway breaks a rule of TLS: {error}"));
            }
        }
        // The answer of a handshake.
        secured.flush(self.end);
        (Vec::new(), state)
    }

    /// Sends as much of `bytes` as there is room for. Returns the number, or `None` if the connection is
    /// gone.
    pub fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        let Some(secured) = &mut self.tls else { return outside::write(self.end, bytes) };
        secured.flush(self.end);
        if secured.is_lost {
            return None;
        }
        if secured.tls.is_handshaking() || secured.tls.wants_write() {
            return Some(0);
        }
        let mut count = 0;
        for record in bytes.chunks(RECORD_BYTES_MAX) {
            let written = secured.tls.writer().write(record).ok()?;
            count += written;
            // The gateway has all of a record, or nothing.
            secured.held = written as u64;
            secured.flush(self.end);
            if secured.is_lost {
                return None;
            }
            if secured.tls.wants_write() {
                break;
            }
        }
        Some(count)
    }

    /// Sends what is held. Returns `true` if nothing is.
    pub fn flush(&mut self) -> bool {
        let Some(secured) = &mut self.tls else { return true };
        secured.flush(self.end);
        !secured.tls.wants_write()
    }

    /// Says that this is the end of the data. Returns `true` once that has left, or if nobody can hear it.
    pub fn notify(&mut self) -> bool {
        let Some(secured) = &mut self.tls else { return true };
        if !secured.is_lost && !secured.tls.is_handshaking() {
            // Only the first call has an effect.
            secured.tls.send_close_notify();
            secured.flush(self.end);
        }
        secured.is_lost || !secured.tls.wants_write()
    }

    /// Closes the end, and says so before if it `notifies`. Returns `false` if the gateway does not hear that
    /// this is the end of what was sent.
    pub fn close(&mut self, notifies: bool) -> bool {
        let is_told = match &mut self.tls {
            None => true,
            Some(_) if notifies => self.notify() && self.tls.as_ref().is_some_and(|secured| !secured.is_lost),
            Some(_) => false,
        };
        outside::close(self.end);
        is_told
    }

    /// Closes the sending side.
    pub fn shut(&mut self) {
        self.notify();
        outside::shut(self.end);
    }

    /// Resets the connection.
    pub fn reset(&mut self) {
        outside::reset(self.end);
    }
}

impl Secured {
    fn decrypt(&mut self, bytes: &[u8], state: State) -> Result<(), rustls::Error> {
        if !bytes.is_empty() {
            self.began.get_or_insert_with(system_time);
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_lost {
            // Behind the end nothing is read.
            if !self.tls.read_tls(&mut rest).is_ok_and(|count| count > 0) {
                break;
            }
            self.tls.process_new_packets()?;
            self.take_plain();
        }
        if state == State::Ended {
            // Reading an empty source is the end of the connection.
            let _ = self.tls.read_tls(&mut io::empty());
            self.tls.process_new_packets()?;
            self.take_plain();
            self.is_cut = !self.has_ended;
        }
        Ok(())
    }

    fn take_plain(&mut self) {
        let mut buffer = [0; 4_096];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => {
                    self.has_ended = true;
                    return;
                }
                Ok(count) => self.plain.extend(&buffer[..count]),
                Err(_) => return,
            }
        }
    }

    /// Sends encrypted bytes, as far as there is room for them, and up to the fault.
    fn flush(&mut self, end: EndId) {
        while self.tls.wants_write() && !self.is_lost && Moment::now() >= self.stalled_until {
            if let Some((after, fault)) = self.fault
                && self.sent >= after
            {
                self.fault = None;
                self.go_wrong(end, fault);
                continue;
            }
            let limit = self.fault.map_or(u64::MAX, |(after, _)| after - self.sent);
            let mut carrier = Carrier { end, limit };
            match self.tls.write_tls(&mut carrier) {
                Ok(count) => self.sent += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_lost = true,
            }
        }
        if !self.tls.wants_write() {
            self.held = 0;
        }
    }

    fn go_wrong(&mut self, end: EndId, fault: Fault) {
        let record = match fault {
            Fault::Close | Fault::Reset => Vec::new(),
            Fault::Alert(number) => vec![21, 3, 3, 0, 2, 2, number],
            Fault::Garbage => [[23, 3, 3, 0, 20].as_slice(), &[1; 20]].concat(),
            Fault::Stall(time) => {
                self.stalled_until = Moment::now() + time;
                return;
            }
        };
        outside::write(end, &record);
        if matches!(fault, Fault::Reset) {
            outside::reset(end)
        } else {
            outside::close(end)
        }
        self.is_lost = true;
    }
}

/// The connection, as TLS writes to it.
struct Carrier {
    end: EndId,
    limit: u64,
}

impl Write for Carrier {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = bytes.len().min(usize::try_from(self.limit).unwrap_or(usize::MAX));
        match outside::write(self.end, &bytes[..most]) {
            None => Err(ErrorKind::BrokenPipe.into()),
            Some(0) => Err(ErrorKind::WouldBlock.into()),
            Some(count) => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
