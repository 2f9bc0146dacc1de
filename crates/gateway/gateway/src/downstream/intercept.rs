//! Interception: the gateway ends the client's TLS inside a tunnel itself, so flows apply to the requests in
//! it.
//!
//! The client comes first. It has its 200 and its handshake before a provider is called, so a pooled
//! connection can serve each request. Whatever goes wrong on the way to the provider is an error response
//! inside.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::mem;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use egret_clock::Moment;
use egret_leg::{Leg, Received};
use egret_message::authority::{Authority, Host};
use egret_net::event_loop;
use egret_net::tls::TlsError;
use egret_net::tls::hello::{
    HELLO_BYTES_MAX, Hello, HelloError, HelloReader, Opening, access_denied, no_application_protocol,
    unrecognized_name,
};
use egret_observe::refusals::TlsRefusal;
use egret_plan::interception::InterceptionPlan;
use rustls::ServerConfig;
use tracing::{debug, warn};

use crate::downstream::connection::{ClientLeg, End, Inside};
use crate::state::request::RequestState;
use egret_upstream::View;

/// Time that a client has for its first bytes if `timeouts.head` is unlimited. In some protocols it waits for
/// the server's, which come only once the tunnel is relayed.
pub(super) const FIRST_BYTES: Duration = Duration::from_secs(10);

/// The start of a tunnel that is to be intercepted.
#[derive(Debug)]
pub(crate) enum Start {
    /// Requests follow on the client's connection.
    Requests,
    /// The bytes received so far, which are still in the input, belong to a protocol that is not served.
    /// They are to be relayed.
    Relay,
    /// The connection is over.
    End(End),
}

/// Returns the TLS settings for the inside of a tunnel to `authority`, or `None` if the gateway only relays
/// it. The authority has a configured provider if `is_provider`.
pub(crate) fn tls_for(
    client: &ClientLeg,
    view: &View,
    authority: &Authority,
    is_provider: bool,
) -> Option<Arc<ServerConfig>> {
    let plan = view.plan.interception.as_ref()?;
    if !plan.is_for(&authority.host, is_provider) {
        return None;
    }
    if plan.gives_way && has_refused(client, &authority.host) {
        debug!(host = %authority.host, "a client refuses the certificate: its tunnel is relayed (`interception.on_refusal`)");
        return None;
    }
    match plan.tls_for(&authority.host) {
        Ok(config) => Some(config),
        Err(error) => {
            if client.connection.worker.shared.unminted.is_due(Moment::now()) {
                warn!(host = %authority.host, %error, "a tunnel that should be intercepted is relayed");
            }
            None
        }
    }
}

/// Serves the start of a tunnel to `authority`, whose 200 the client has. The input holds the CONNECT, and
/// what the client has sent behind it.
pub(crate) async fn start(
    client: &mut ClientLeg,
    state: &mut RequestState,
    authority: Authority,
    config: Arc<ServerConfig>,
) -> Start {
    let head = client.connection.worker.view().plan.timeouts.head;
    client.timer.set(Moment::now(), Some(head.unwrap_or(FIRST_BYTES)));
    match opening(client, state).await {
        Some(Opening::Tls) => {}
        Some(Opening::Http) => {
            state.input.remove(0, state.request.len);
            return serve_inside(client, state, Inside::new(authority, false));
        }
        Some(Opening::Http2 | Opening::Other) => return unknown(client, &[]).await,
        None => return Start::End(End::Close),
    }
    let hello = match read_hello(client, state).await {
        Ok(hello) => hello,
        Err(ended) => return ended,
    };
    if hello.server_name().is_some_and(|name| !is_of(&name, &authority.host)) {
        client.connection.worker.counters().sni_mismatches.add(1);
        debug!(%authority, "a client names another server in TLS than in its CONNECT");
        return refuse(client, &unrecognized_name()).await;
    }
    // The settings have the protocols that are served (RFC 7301): HTTP/2 unless `gateway.http2` is `false`.
    if !config.alpn_protocols.iter().any(|served| hello.accepts(served)) {
        return unknown(client, &no_application_protocol()).await;
    }
    match shake_hands(client, state, hello, config).await {
        Ok(leg) => {
            client.leg = leg;
            state.input.clear();
            serve_inside(client, state, Inside::new(authority, true))
        }
        Err(error) => {
            client.connection.worker.counters().tls_failures.add(1);
            debug!(%authority, ?error, "the TLS handshake in a tunnel failed");
            if let Some(refusal) = TlsRefusal::of(error) {
                note_refusal(client, &authority.host, refusal);
            }
            Start::End(End::Close)
        }
    }
}

/// Notes that a request has arrived inside: the client accepts the certificate.
pub(crate) fn note_request(client: &ClientLeg, inside: &Inside) {
    client.connection.worker.counters().intercepted_exchanges.add(1);
    if !inside.is_used.replace(true)
        && inside.tls
        && let Some(peer) = client.peer_ip()
    {
        client.connection.worker.shared.refusals.forget(&inside.authority.host, peer);
    }
}

/// Notes that the client has closed its connection. Clients that verify a certificate after the handshake do
/// so without a request if they refuse it. Out of line, since it has no place on the path of a request.
#[inline(never)]
pub(crate) fn note_end(client: &ClientLeg) {
    if let Some(inside) = client.connection.inside()
        && inside.tls
        && !inside.is_used.get()
    {
        note_refusal(client, &inside.authority.host, TlsRefusal::Unused);
    }
}

/// Switches the connection to the requests inside.
fn serve_inside(client: &mut ClientLeg, state: &mut RequestState, inside: Inside) -> Start {
    client.connection.worker.counters().intercepted_connections.add(1);
    client.connection.enter(inside);
    client.last_active = Moment::now();
    state.request.reset();
    Start::Requests
}

/// Waits for the first bytes inside. A client that sends none waits for the server, in a protocol in which
/// that one speaks first. Returns `None` if the client has left.
pub(super) async fn opening(client: &mut ClientLeg, state: &mut RequestState) -> Option<Opening> {
    loop {
        if let Some(opening) = Opening::of(received(state)) {
            return Some(opening);
        }
        match receive(client, state).await {
            Arrived::Bytes => {}
            Arrived::End if received(state).is_empty() => return None,
            Arrived::End | Arrived::Late => return Some(Opening::Other),
        }
    }
}

/// Reads the whole `ClientHello`.
pub(super) async fn read_hello(client: &mut ClientLeg, state: &mut RequestState) -> Result<Hello, Start> {
    let mut reader = HelloReader::default();
    loop {
        match reader.read(received(state)) {
            Ok(Some(hello)) => return Ok(hello),
            Ok(None) => {}
            Err(HelloError { error, alert }) => {
                debug!(?error, "a tunnel begins with a bad ClientHello");
                client.connection.worker.counters().tls_failures.add(1);
                return Err(refuse(client, &alert).await);
            }
        }
        if !matches!(receive(client, state).await, Arrived::Bytes) {
            debug!("a tunnel begins with an incomplete `ClientHello`");
            client.connection.worker.counters().tls_failures.add(1);
            return Err(Start::End(End::Close));
        }
    }
}

async fn shake_hands(
    client: &mut ClientLeg,
    state: &RequestState,
    hello: Hello,
    config: Arc<ServerConfig>,
) -> Result<Leg, TlsError> {
    // The address is needed later, also if the handshake fails and closes the socket.
    client.peer_address();
    let leg = mem::replace(&mut client.leg, Leg::None);
    let patience = client.connection.worker.view().plan.timeouts.head.unwrap_or(Duration::MAX);
    let shaken = event_loop::timeout(patience, leg.accept_tls(hello, received(state), config)).await;
    shaken.unwrap_or(Err(TlsError::Io(ErrorKind::TimedOut)))
}

/// The outcome of waiting for bytes.
enum Arrived {
    Bytes,
    /// The client has closed its sending side, or the connection failed.
    End,
    /// None arrived in time.
    Late,
}

/// Receives more bytes of the tunnel.
async fn receive(client: &mut ClientLeg, state: &mut RequestState) -> Arrived {
    let max = state.request.len + HELLO_BYTES_MAX + 1;
    if state.input.is_full() {
        client.connection.worker.pools.buffers.grow(&mut state.input, max);
    }
    let received = poll_fn(|cx| {
        if let Poll::Ready(received) = client.leg.poll_receive(cx, &mut state.input) {
            return Poll::Ready(Some(received));
        }
        if client.timer.poll_expired(cx) { Poll::Ready(None) } else { Poll::Pending }
    });
    match received.await {
        Some(Received::Data(count)) => {
            client.connection.worker.counters().received_bytes.add(count as u64);
            Arrived::Bytes
        }
        Some(Received::End | Received::Gone(_)) => Arrived::End,
        None => Arrived::Late,
    }
}

/// Returns the bytes of the tunnel received so far.
fn received(state: &RequestState) -> &[u8] {
    state.input.filled().get(state.request.len..).unwrap_or_default()
}

/// Ends the connection with `alert`, an alert's record.
async fn refuse(client: &mut ClientLeg, alert: &[u8]) -> Start {
    client.send_all(alert).await;
    Start::End(End::Linger)
}

/// Sends the alert that TLS has for a denied access, if the tunnel begins with TLS.
pub(crate) async fn deny(client: &mut ClientLeg, state: &RequestState) {
    if Opening::of(received(state)) == Some(Opening::Tls) {
        client.send_all(&access_denied()).await;
    }
}

/// Treats a protocol that is not served as the config says: it is relayed, or refused with `alert`.
async fn unknown(client: &mut ClientLeg, alert: &[u8]) -> Start {
    let refuses = |plan: &InterceptionPlan| plan.refuses_unknown;
    if !client.connection.worker.view().plan.interception.as_ref().is_some_and(refuses) {
        return Start::Relay;
    }
    client.connection.worker.counters().intercept_unknown.add(1);
    debug!("a tunnel with an unknown protocol is closed (`interception.unknown`)");
    refuse(client, alert).await
}

/// Returns `true` if `name`, from a `ClientHello`, is `host`.
fn is_of(name: &str, host: &Host) -> bool {
    Host::parse(name.as_bytes()).is_ok_and(|named| named == *host)
}

fn has_refused(client: &ClientLeg, host: &Host) -> bool {
    client
        .peer_ip()
        .is_some_and(|peer| client.connection.worker.shared.refusals.is_refused(host, peer, Moment::now()))
}

/// Counts a refusal, and logs it once.
fn note_refusal(client: &ClientLeg, host: &Host, refusal: TlsRefusal) {
    client.connection.worker.counters().intercept_refused.add(1);
    let Some(peer) = client.peer_ip() else { return };
    if client.connection.worker.shared.refusals.note(host, peer, refusal, Moment::now()) {
        warn!(
            %host,
            client = %peer,
            reason = refusal.slug(),
            "a client refuses the certificate of an intercepted host: {}",
            refusal.advice()
        );
    }
}
