//! Dialling: opens a TCP connection to a target that the egress policy allows.
//!
//! Addresses are tried according to RFC 8305 ("happy eyeballs"): the address families alternate, IPv6 first,
//! and the next attempt starts when the last one has failed or has taken a while. The first to connect wins.
//! The policy checks every address before it is dialled and every connection before it is returned.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;
use socket2::{Domain, Protocol, TcpKeepalive, Type};

use crate::descriptors::{self, OpenFiles};
use crate::dns::{DnsError, Resolver};
use crate::event_loop::{self, Alarm, Socket, now};
use crate::os::kernel;
use crate::policy::{EgressPolicy, EgressTarget, Reason, Verdict};

/// Maximum number of addresses that are tried per host. Name servers may send any number.
const ADDRESSES_MAX: usize = 16;

/// Keepalive settings: idle time before the first probe, interval, and number of probes. A peer that vanished
/// behind a firewall is noticed within two minutes.
const KEEPALIVE_TIME: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Options for dialling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialOptions {
    /// Timeout for all addresses together, once they are known. Zero means no limit.
    pub connect_timeout: Duration,
    /// Time before the next address is tried beside an unfinished attempt (RFC 8305 §5 recommends 250 ms).
    pub attempt_delay: Duration,
}

impl Default for DialOptions {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(5), attempt_delay: Duration::from_millis(250) }
    }
}

/// A connection, with `TCP_NODELAY` and keepalive set.
#[derive(Debug)]
pub struct Dialed {
    /// The connection. No byte has been sent yet.
    pub socket: Socket,
    /// The peer's address.
    pub peer: SocketAddr,
    /// Duration of the look-up. Zero if the host is an address.
    pub dns: Duration,
    /// Time from the first attempt to the connection.
    pub connect: Duration,
    /// The reason for which the policy would have denied the target, if its mode is `report`.
    pub reported: Option<Reason>,
}

/// The reason why a connection could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The look-up of the name failed.
    #[error("{0}")]
    Dns(DnsError),
    /// The egress policy denies the target.
    #[error("{0}")]
    Denied(Reason),
    /// The connection was refused: no listener on that port.
    #[error("the connection was refused")]
    Refused,
    /// There is no route to the host.
    #[error("the host or network is unreachable")]
    Unreachable,
    /// No attempt succeeded in time.
    #[error("the connection attempt timed out")]
    Timeout,
    /// Too many files are open.
    #[error("too many files are open in Egret: raise its limit (`ulimit -n`)")]
    NoFile,
    /// Another error.
    #[error("the connection failed: {0}")]
    Io(ErrorKind),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
                Self::Unreachable
            }
            ErrorKind::TimedOut => Self::Timeout,
            _ if descriptors::is_exhausted(&error) => Self::NoFile,
            kind => Self::Io(kind),
        }
    }
}

impl DialError {
    /// Returns how informative the error is, if several attempts failed in different ways. The highest is
    /// reported.
    fn telling(self) -> u8 {
        match self {
            Self::Unreachable | Self::Dns(_) => 0,
            Self::Io(_) => 1,
            Self::Timeout => 2,
            Self::Refused => 3,
            Self::NoFile => 4,
            Self::Denied(_) => 5,
        }
    }
}

/// Checks the host against the policy, resolves it and connects to one of its addresses.
///
/// The timeout covers only the connection. The look-up has its own, `gateway.dns.timeout`.
pub async fn dial(
    target: &EgressTarget<'_>,
    resolver: &Resolver,
    policy: &EgressPolicy,
    options: &DialOptions,
) -> Result<Dialed, DialError> {
    let mut reported = None;
    admit(policy.check_host(target), &mut reported)?;
    let start = now::exact();
    let (addresses, dns) = match target.authority.host.name() {
        Some(name) => (resolver.resolve(name).await.map_err(DialError::Dns)?, elapsed(start)),
        None => (target.authority.host.ip().into_iter().collect(), Duration::ZERO),
    };
    let dialed = connect(target, &addresses, policy, options).await?;
    Ok(Dialed { dns, reported: reported.or(dialed.reported), ..dialed })
}

/// Connects to one of `addresses`. Skips those that the policy denies.
pub async fn connect(
    target: &EgressTarget<'_>,
    addresses: &[IpAddr],
    policy: &EgressPolicy,
    options: &DialOptions,
) -> Result<Dialed, DialError> {
    let mut denied = None;
    let mut candidates = VecDeque::new();
    for ip in in_turn(addresses) {
        let address = SocketAddr::new(ip, target.authority.port);
        let mut reported = None;
        match admit(policy.check_address(target, address), &mut reported) {
            Ok(()) => candidates.push_back((address, reported)),
            Err(error) => denied = denied.or(Some(error)),
        }
    }
    if candidates.is_empty() {
        return Err(denied.unwrap_or(DialError::Dns(DnsError::NotFound)));
    }
    let start = now::exact();
    let race =
        Race::new(candidates, options, |(address, reported)| attempt(target, address, policy, reported));
    let (socket, peer, reported) = in_time(options.connect_timeout, race.run()).await?;
    Ok(Dialed { socket, peer, dns: Duration::ZERO, connect: elapsed(start), reported })
}

fn elapsed(start: Moment) -> Duration {
    now::exact().since(start)
}

async fn in_time<T>(
    timeout: Duration,
    race: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    if timeout.is_zero() {
        return race.await;
    }
    event_loop::timeout(timeout, race).await.unwrap_or(Err(DialError::Timeout))
}

/// Converts a verdict to a result, and remembers the first reason that is only reported.
pub(crate) fn admit(verdict: Verdict, reported: &mut Option<Reason>) -> Result<(), DialError> {
    match verdict {
        Verdict::Allow => Ok(()),
        Verdict::Report(reason) => {
            reported.get_or_insert(reason);
            Ok(())
        }
        Verdict::Deny(reason) => Err(DialError::Denied(reason)),
    }
}

/// Returns the addresses with alternating families, IPv6 first (RFC 8305 §4), at most [`ADDRESSES_MAX`].
fn in_turn(addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let (v6, v4): (Vec<IpAddr>, Vec<IpAddr>) = addresses.iter().partition(|ip| ip.is_ipv6());
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    std::iter::from_fn(move || {
        // Swapped after each address, so the families alternate.
        std::mem::swap(&mut v6, &mut v4);
        v4.next().or_else(|| v6.next())
    })
    .take(ADDRESSES_MAX)
}

/// Makes one attempt at one address.
async fn attempt(
    target: &EgressTarget<'_>,
    address: SocketAddr,
    policy: &EgressPolicy,
    mut reported: Option<Reason>,
) -> Result<(Socket, SocketAddr, Option<Reason>), DialError> {
    let socket = kernel::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if OpenFiles::get().reserves(&socket) {
        return Err(DialError::NoFile);
    }
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    let socket = Socket::connect(socket, address).await?;
    let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
    // A socket can connect to itself, if its local port happens to be the dialled port. There is no listener
    // then.
    if local == peer {
        return Err(DialError::Refused);
    }
    admit(policy.check_connected(target, local, peer), &mut reported)?;
    Ok((socket, peer, reported))
}

/// The remaining candidates, and the attempts in progress.
struct Race<C, S, F> {
    candidates: VecDeque<C>,
    start: S,
    attempts: Vec<Pin<Box<F>>>,
    attempt_delay: Duration,
    /// The most informative failure so far.
    failure: Option<DialError>,
}

impl<C, T, S: Fn(C) -> F, F: Future<Output = Result<T, DialError>>> Race<C, S, F> {
    fn new(candidates: VecDeque<C>, options: &DialOptions, start: S) -> Self {
        Self { candidates, start, attempts: Vec::new(), attempt_delay: options.attempt_delay, failure: None }
    }

    /// Returns the first successful attempt, or the error. Losing attempts are dropped, which closes their
    /// sockets.
    async fn run(mut self) -> Result<T, DialError> {
        self.start_next();
        let mut alone = pin!(event_loop::sleep(self.attempt_delay));
        poll_fn(|cx| self.poll(cx, alone.as_mut())).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, mut alone: Pin<&mut Alarm>) -> Poll<Result<T, DialError>> {
        loop {
            let before = self.attempts.len();
            if let Some(won) = self.poll_attempts(cx) {
                return Poll::Ready(Ok(won));
            }
            let has_failed = self.attempts.len() < before;
            if self.candidates.is_empty() {
                return match self.failure {
                    Some(error) if self.attempts.is_empty() => Poll::Ready(Err(error)),
                    _ => Poll::Pending,
                };
            }
            if !has_failed && alone.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.start_next();
            alone.reset(now::exact() + self.attempt_delay);
        }
    }

    fn start_next(&mut self) {
        if let Some(candidate) = self.candidates.pop_front() {
            self.attempts.push(Box::pin((self.start)(candidate)));
        }
    }

    /// Polls every attempt and removes those that fail.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> Option<T> {
        let mut won = None;
        self.attempts.retain_mut(|attempt| match attempt.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(connected)) => {
                won.get_or_insert(connected);
                false
            }
            Poll::Ready(Err(error)) => {
                if self.failure.is_none_or(|failure| failure.telling() < error.telling()) {
                    self.failure = Some(error);
                }
                false
            }
        });
        won
    }
}

#[cfg(test)]
mod tests;
