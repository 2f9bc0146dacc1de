//! Clients that refuse the gateway's certificate. Two refusals in a row are one that is reported: the first
//! may be a connection that was opened in advance and not used.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::Moment;
use egret_message::authority::Host;
use egret_net::tls::TlsError;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};

/// Maximum number of pairs of host and client that are remembered.
const PAIRS_MAX: usize = 1024;
/// Time after which a refusal is forgotten.
const MEMORY: Duration = Duration::from_hours(1);
/// Maximum number of hosts that are listed.
const LISTED_MAX: usize = 10;
/// Number of refusals in a row that count as one.
const ENOUGH: u8 = 2;

/// The way in which a client has refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRefusal {
    /// It sent this alert (RFC 8446 §6.2).
    Alert(u8),
    /// It closed the connection during the handshake.
    Closed,
    /// It completed the handshake and closed the connection without a request.
    Unused,
}

impl TlsRefusal {
    /// The alert of a certificate that has expired, or is not valid yet.
    pub const EXPIRED: u8 = 45;

    /// Returns the refusal that a failed handshake shows, if it is one.
    pub fn of(error: TlsError) -> Option<Self> {
        match error {
            // `bad_certificate` to `certificate_unknown`, `unknown_ca` and `access_denied`. Other alerts are
            // not about the certificate.
            TlsError::Alert(alert @ (42..=46 | 48 | 49)) => Some(Self::Alert(alert)),
            TlsError::Closed
            | TlsError::Io(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof) => {
                Some(Self::Closed)
            }
            _ => None,
        }
    }

    /// Returns a short name for the log.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Alert(42) => "bad_certificate",
            Self::Alert(43) => "unsupported_certificate",
            Self::Alert(44) => "certificate_revoked",
            Self::Alert(Self::EXPIRED) => "certificate_expired",
            Self::Alert(46) => "certificate_unknown",
            Self::Alert(48) => "unknown_ca",
            Self::Alert(_) => "access_denied",
            Self::Closed => "closed in the handshake",
            Self::Unused => "closed without a request",
        }
    }

    /// Returns what its owner can do about it. Each TLS library has an alert of its own for an issuer that it
    /// does not know, so the alert tells which variables may help.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Alert(48) => {
                "give the client the authority's certificate: `SSL_CERT_FILE` (OpenSSL, Python, Ruby, Rust), `CURL_CA_BUNDLE` \
                 (curl), `REQUESTS_CA_BUNDLE` (requests), `NODE_EXTRA_CA_CERTS` (Node), `DENO_CERT` (Deno), `GIT_SSL_CAINFO` \
                 (git), `AWS_CA_BUNDLE` (AWS), `curl.cainfo` and `openssl.cafile` by `PHP_INI_SCAN_DIR` (PHP), \
                 `stripe.ca_bundle_path` (Stripe)"
            }
            Self::Alert(42) => {
                "give the client the authority's certificate: `SSL_CERT_FILE` together with `SSL_CERT_DIR` (Go), \
                 `SSL_CERT_FILE` (OpenSSL)"
            }
            Self::Alert(46) => {
                "give the client the authority's certificate: `JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE` (Java), the \
                 system's or the browser's store (Chromium), `GRPC_DEFAULT_SSL_ROOTS_FILE_PATH` (gRPC)"
            }
            Self::Alert(Self::EXPIRED) => {
                "compare the clocks of both machines; if they agree, renew the authority with `egret ca init --force`"
            }
            Self::Alert(_) => "see the client's own log for what it dislikes about the certificate",
            Self::Closed | Self::Unused => {
                "the client may accept one certificate only: list the host in `interception.tunnel`. Otherwise give it the \
                 authority's certificate: `NODE_EXTRA_CA_CERTS` (Node, Bun), `DENO_CERT` (Deno), `GIT_SSL_CAINFO` (git), \
                 `--ca-certificate` (wget), `SSL_CERT_FILE` (Python's asyncio), \
                 `JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE` (Java)"
            }
        }
    }
}

impl Serialize for TlsRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.slug())
    }
}

/// A host whose certificate a client refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedHost {
    /// The host.
    pub host: String,
    /// The client's address.
    pub client: IpAddr,
    /// The way in which it has refused last.
    pub refusal: TlsRefusal,
}

/// The refusals of one host by one client.
#[derive(Debug, Clone, Copy)]
struct PairRefusals {
    in_a_row: u8,
    last: Moment,
    refusal: TlsRefusal,
}

/// The refusals of the last hour.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Locked when a connection is refused, and for the first request of a connection while there are
    /// refusals.
    known: Mutex<HashMap<(Host, IpAddr), PairRefusals>>,
    /// Their number. Read without the lock.
    count: AtomicUsize,
}

impl Refusals {
    /// Notes that the client at `peer` has refused the certificate of `host` at `now`. Returns `true` if that
    /// is to be reported: once, until the client accepts it.
    pub fn note(&self, host: &Host, peer: IpAddr, refusal: TlsRefusal, now: Moment) -> bool {
        let mut known = self.known.lock();
        if !known.contains_key(&(host.clone(), peer)) {
            make_room(&mut known, now);
        }
        let first = PairRefusals { in_a_row: 0, last: now, refusal };
        let pair = known.entry((host.clone(), peer)).or_insert(first);
        if is_over(*pair, now) {
            pair.in_a_row = 0;
        }
        pair.in_a_row = pair.in_a_row.saturating_add(1);
        (pair.last, pair.refusal) = (now, refusal);
        let is_enough = pair.in_a_row == ENOUGH;
        self.count.store(known.len(), Relaxed);
        is_enough
    }

    /// Returns hosts whose certificate clients refuse, those refused last first.
    pub fn hosts(&self) -> Vec<RefusedHost> {
        if self.count.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut known: Vec<_> =
            self.known.lock().iter().map(|(pair, known)| (pair.clone(), *known)).collect();
        known.sort_by_key(|(_, known)| std::cmp::Reverse(known.last));
        let host = |((host, client), known): ((Host, IpAddr), PairRefusals)| RefusedHost {
            host: host.to_string(),
            client,
            refusal: known.refusal,
        };
        known.into_iter().take(LISTED_MAX).map(host).collect()
    }

    /// Notes that the client at `peer` has accepted the certificate of `host`.
    pub fn forget(&self, host: &Host, peer: IpAddr) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let mut known = self.known.lock();
        known.remove(&(host.clone(), peer));
        self.count.store(known.len(), Relaxed);
    }

    /// Returns `true` if the client at `peer` refuses the certificate of `host`.
    pub fn is_refused(&self, host: &Host, peer: IpAddr, now: Moment) -> bool {
        if self.count.load(Relaxed) == 0 {
            return false;
        }
        let known = self.known.lock();
        known.get(&(host.clone(), peer)).is_some_and(|pair| pair.in_a_row >= ENOUGH && !is_over(*pair, now))
    }
}

fn is_over(pair: PairRefusals, now: Moment) -> bool {
    now.since(pair.last) >= MEMORY
}

/// Removes what is forgotten and, if that is not enough, the pair that was seen least recently.
fn make_room(known: &mut HashMap<(Host, IpAddr), PairRefusals>, now: Moment) {
    if known.len() < PAIRS_MAX {
        return;
    }
    known.retain(|_, pair| !is_over(*pair, now));
    if known.len() >= PAIRS_MAX
        && let Some(oldest) = known.iter().min_by_key(|(_, pair)| pair.last).map(|(pair, _)| pair.clone())
    {
        known.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const UNKNOWN: TlsRefusal = TlsRefusal::Alert(48);
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn host(text: &str) -> Host {
        Host::parse(text.as_bytes()).unwrap()
    }

    fn after(seconds: u64) -> Moment {
        Moment::now() + Duration::from_secs(seconds)
    }

    #[test]
    fn two_in_a_row_are_reported_once() {
        let refusals = Refusals::default();
        let now = after(0);
        let noted: Vec<bool> =
            (0..4).map(|_| refusals.note(&host("a.example"), PEER, UNKNOWN, now)).collect();
        assert_eq!(noted, [false, true, false, false]);
        assert!(refusals.is_refused(&host("a.example"), PEER, now));
        assert!(!refusals.is_refused(&host("b.example"), PEER, now));
        assert!(!refusals.is_refused(&host("a.example"), [10, 0, 0, 1].into(), now));
        let listed = RefusedHost { host: "a.example".to_owned(), client: PEER, refusal: UNKNOWN };
        assert_eq!(refusals.hosts(), [listed]);
    }

    #[test]
    fn a_request_in_between_begins_anew() {
        let refusals = Refusals::default();
        let now = after(0);
        refusals.forget(&host("a.example"), PEER);
        assert!(!refusals.note(&host("a.example"), PEER, UNKNOWN, now));
        refusals.forget(&host("a.example"), PEER);
        assert!(!refusals.note(&host("a.example"), PEER, UNKNOWN, now));
        assert!(!refusals.is_refused(&host("a.example"), PEER, now));
        assert!(refusals.note(&host("a.example"), PEER, UNKNOWN, now));
    }

    #[test]
    fn a_refusal_is_forgotten_after_an_hour() {
        let refusals = Refusals::default();
        assert!(!refusals.note(&host("a.example"), PEER, UNKNOWN, after(0)));
        assert!(!refusals.note(&host("a.example"), PEER, UNKNOWN, after(3700)));
        assert!(refusals.note(&host("a.example"), PEER, UNKNOWN, after(3701)));
        assert!(!refusals.is_refused(&host("a.example"), PEER, after(8000)));
    }

    #[test]
    fn the_memory_is_bounded() {
        let refusals = Refusals::default();
        for number in 0..2 * PAIRS_MAX {
            refusals.note(&host(&format!("{number}.example")), PEER, UNKNOWN, after(0));
        }
        assert_eq!(refusals.known.lock().len(), PAIRS_MAX);
        for number in 0..PAIRS_MAX {
            refusals.note(&host(&format!("{number}.example")), PEER, UNKNOWN, after(7200));
        }
        assert_eq!(refusals.count.load(Relaxed), PAIRS_MAX);
    }

    #[test]
    fn an_alert_about_a_certificate_is_a_refusal_with_advice() {
        for (alert, part) in [(48, "SSL_CERT_FILE"), (42, "Go"), (46, "Java"), (45, "clocks")] {
            let refusal = TlsRefusal::of(TlsError::Alert(alert)).unwrap();
            assert!(refusal.advice().contains(part), "{alert}");
            assert!(!refusal.slug().is_empty());
        }
        assert_eq!(TlsRefusal::of(TlsError::Closed), Some(TlsRefusal::Closed));
        let late = TlsError::Io(ErrorKind::TimedOut);
        for other in [TlsError::Alert(40), TlsError::Incompatible, TlsError::Protocol, TlsError::NotTls, late]
        {
            assert_eq!(TlsRefusal::of(other), None);
        }
    }
}
