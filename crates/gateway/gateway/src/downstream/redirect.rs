//! Redirected connections: their clients think that they are talking to the provider itself. The system has
//! led them here, by a network namespace (`egret exec --isolate`) or by its packet filter (`redirect: true`).
//!
//! Such a connection is made to look like one of a forward proxy's client. Where it begins with TLS, a
//! CONNECT is put before its bytes; where it begins with a request, the request's `Host` names its authority.
//! So what follows is the same: policy, interception, flows, records. Only responses to the CONNECT are not
//! sent.
//!
//! The name that the client sends decides, and not the address that it has connected to: whatever address the
//! client chooses, the policy judges the host that is called.

use std::io;
use std::net::SocketAddr;

use egret_clock::Moment;
use egret_http1::RequestHead;
use egret_message::authority::{Authority, Host};
use egret_message::{ClientAddress, default_port};
use egret_net::event_loop::Socket;
use egret_net::os::kernel::SockRef;
use egret_net::proxy::handshake::connect_head;
use egret_net::tls::hello::{Opening, unrecognized_name};
use socket2::SockAddr;
use tracing::{debug, warn};

use crate::downstream::connection::{ClientLeg, Inside, Redirected};
use crate::downstream::intercept::{FIRST_BYTES, opening, read_hello};
use crate::state::request::RequestState;

/// Reads the first bytes of a redirected connection, and prepares it and the input for the requests to come.
/// Returns `false` if the connection is over.
pub(crate) async fn begin(client: &mut ClientLeg, state: &mut RequestState) -> bool {
    let Some(destination) = client.leg.socket().and_then(original_destination) else {
        debug!("the destination of a redirected connection is unknown");
        return false;
    };
    // The tables are reused: no head precedes the bytes.
    state.request.len = 0;
    let head = client.connection.worker.view().plan.timeouts.head;
    client.timer.set(Moment::now(), Some(head.unwrap_or(FIRST_BYTES)));
    let opening = opening(client, state).await;
    if is_loop(client) {
        return false;
    }
    let host = match opening {
        None => return false,
        Some(Opening::Http) => {
            client.connection.redirect(Redirected::Requests(destination));
            return true;
        }
        // Nothing names a host, or nothing that can be read here: the address is all there is.
        Some(Opening::Http2 | Opening::Other) => Host::Ip(destination.ip()),
        Some(Opening::Tls) => match read_hello(client, state).await {
            Err(_) => return false,
            Ok(hello) => match hello.server_name().map(|name| Host::parse(name.as_bytes())) {
                Some(Ok(host)) => host,
                None => Host::Ip(destination.ip()),
                Some(Err(error)) => {
                    debug!(%error, "a redirected client names a bad host in TLS");
                    client.send_all(&unrecognized_name()).await;
                    return false;
                }
            },
        },
    };
    let authority = Authority { host, port: destination.port() };
    let connect = connect_head(&authority, None);
    client.connection.worker.pools.buffers.replace_front(&mut state.input, 0, connect.as_bytes());
    client.connection.redirect(Redirected::Tunnel);
    true
}

/// Returns `true` if the client is the gateway itself.
fn is_loop(client: &ClientLeg) -> bool {
    let loops = &client.connection.worker.shared.loops;
    let is_own =
        client.peer_address().and_then(ClientAddress::internet).is_some_and(|peer| loops.is_own(peer));
    if is_own && loops.is_due() {
        warn!(
            "the system redirects the gateway's own connections to it: exclude them in the packet filter, as by the user that \
             Egret runs as (`-m owner ! --uid-owner`)"
        );
    }
    is_own
}

/// Gives the connection, which was redirected here from `destination`, the authority that its first request
/// names.
pub(crate) fn enter(client: &ClientLeg, destination: SocketAddr, request: &RequestHead, bytes: &[u8]) {
    let host = request.host.map(|host| host.of(bytes));
    let named = host.and_then(|host| Authority::parse(host, Some(default_port(false))).ok());
    // A bad `Host` is refused when the request is routed, because it does not name this authority.
    let authority = named.unwrap_or(Authority { host: Host::Ip(destination.ip()), port: destination.port() });
    client.connection.enter(Inside::new(authority, false));
}

/// Returns the address that the client has connected to: before the packet filter has changed it, if it has.
fn original_destination(socket: &Socket) -> Option<SocketAddr> {
    let local = socket.local_addr().ok()?;
    let before = before_redirection(socket, local).ok().and_then(|address| address.as_socket());
    let destination = before.unwrap_or(local);
    Some(SocketAddr::new(destination.ip().to_canonical(), destination.port()))
}

#[cfg(target_os = "linux")]
fn before_redirection(socket: &Socket, local: SocketAddr) -> io::Result<SockAddr> {
    let socket = SockRef::from(socket);
    if local.ip().to_canonical().is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() }
}

#[cfg(not(target_os = "linux"))]
fn before_redirection(_: &Socket, _: SocketAddr) -> io::Result<SockAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
