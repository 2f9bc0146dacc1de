//! The plan: the configuration in the form that the workers use. It is validated, compiled once, shared and
//! never changed.
//!
//! A reload compiles a new plan beside the running one (`compile`, `listeners`, `providers`). Unchanged
//! parts, such as a provider with its connections and counters (`upstream`), are carried over from the old
//! plan, so nothing of them is lost.

mod compile;
pub mod config;
pub mod interception;
mod listeners;
mod providers;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use egret_clients::{Clients, Issuer};
use egret_config::Problem;
use egret_flow::Flows;
use egret_http1::{HeadLimits, Method, TrailerNames};
use egret_match::named_fields::NamedFields;
use egret_match::providers::ProviderTable;
use egret_message::ListenAddress;
use egret_message::authority::Authority;
use egret_net::tls::ServerTls;
use egret_observe::failure::ErrorResponses;
use egret_prices::Prices;

use crate::config::{GatewayConfig, LimitsConfig, OnClientClose, RequestIdsConfig};
use crate::interception::InterceptionPlan;

pub use self::compile::{token_origin, validate};
pub use self::upstream::{Certified, OTHER_HOSTS, OpenPlace, OtherHosts, UpstreamPlan};

/// The compiled configuration.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the keys are independent of each other")]
pub struct Plan {
    /// The configured providers, in the order of their numbers.
    pub providers: Vec<Arc<UpstreamPlan>>,
    /// Providers as reached by accounts with a client certificate.
    pub certified: Vec<Certified>,
    /// The names and URLs of the providers, by the same numbers.
    pub table: ProviderTable,
    /// The listening addresses.
    pub listeners: Vec<ListenerPlan>,
    /// The settings of hosts without a configured provider.
    pub other_hosts: Arc<OtherHosts>,
    /// Timeouts of waits for clients.
    pub timeouts: ClientTimeouts,
    /// Limits for clients and providers.
    pub limits: LimitsConfig,
    /// Limits of a head.
    pub head_limits: HeadLimits,
    /// Trailer fields that are forwarded.
    pub trailers: TrailerNames,
    /// Trailer fields of gRPC calls that are forwarded: all that may be trailers, because they are metadata
    /// of the application.
    pub grpc_trailers: TrailerNames,
    /// Header fields with a meaning given by the config.
    pub named_fields: NamedFields,
    /// `true` if responses are rewritten for clients that name the provider by base URL.
    pub rewrites: bool,
    /// `true` if providers receive the client's address in `X-Forwarded-For`.
    pub forwarded_for: bool,
    /// `true` if clients may speak HTTP/2.
    pub http2: bool,
    /// Treatment of calls whose client closes its connection. `None` depends on the method.
    on_client_close: Option<OnClientClose>,
    /// `true` if the endpoints of all exchanges are listed.
    pub discovers: bool,
    /// Which requests have an id, and who learns it.
    pub request_ids: RequestIds,
    /// The gateway's own error responses.
    pub errors: ErrorResponses,
    /// The prices of language models.
    pub prices: Arc<Prices>,
    /// The flows that apply to exchanges.
    pub flows: Flows,
    /// The tunnels that the gateway serves itself. `None` if it relays all of them.
    pub interception: Option<InterceptionPlan>,
    /// Changes with each config of which recorded requests must know nothing, see `begin_generation` of the
    /// gateway.
    pub generation: u64,
    config: GatewayConfig,
}

/// Which requests have an id, and who learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestIds {
    /// No request has one.
    Off,
    /// Every request has one, and the client learns it.
    Kept,
    /// As `Kept`, and the provider learns those that the gateway makes.
    Sent,
}

impl RequestIds {
    fn of(config: &RequestIdsConfig) -> Self {
        match config {
            ids if !ids.enabled => Self::Off,
            ids if ids.send => Self::Sent,
            _ => Self::Kept,
        }
    }
}

/// The ways in which the clients of a listener name a provider.
#[derive(Debug, Clone, Copy)]
pub enum ListenerRouting {
    /// The usual ones.
    Usual,
    /// Query parameters as well.
    WithQuery,
    /// None: the system redirects connections here whose clients know nothing of a gateway.
    Redirected,
    /// One: the handshake of SOCKS 5 names it, as a CONNECT does.
    Socks,
}

/// One listening address.
#[derive(Debug)]
pub struct ListenerPlan {
    /// The bound address.
    pub address: ListenAddress,
    /// The provider that receives every request of this listener.
    pub provider: Option<usize>,
    /// The provider that receives the `https` requests instead.
    pub https_provider: Option<usize>,
    /// `true` if these providers get the client's `Host`.
    pub keep_host: bool,
    /// `true` if requests that name no scheme count as `https`.
    pub secure: bool,
    /// The ways in which clients name a provider, unless there is only one.
    pub routing: ListenerRouting,
    /// The TLS config for clients, if the listener uses TLS.
    pub tls: Option<ServerTls>,
    /// The clients that may use the listener, if they have to prove who they are.
    pub clients: Option<Arc<Clients>>,
    /// Values of `Host` that name the gateway itself, in lower case.
    own_hosts: Vec<Box<[u8]>>,
}

/// Timeouts of waits for clients. `None` is unlimited.
#[derive(Debug, Clone, Copy)]
pub struct ClientTimeouts {
    /// Time for a request's head, from its first byte.
    pub head: Option<Duration>,
    /// Time between two requests of a connection.
    pub keep_alive: Option<Duration>,
    /// Time within which a client that has closed its sending side must take more of its response.
    pub half_close: Option<Duration>,
    /// Time for exchanges in flight when the gateway stops.
    pub drain: Option<Duration>,
    /// Time without a byte from or to a client.
    pub idle: Option<Duration>,
}

/// Timeouts of waits for a provider. `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Time for a connection, including name resolution.
    pub connect: Option<Duration>,
    /// Time for the TLS handshake.
    pub tls: Option<Duration>,
    /// Time until the first byte of the response.
    pub first_byte: Option<Duration>,
    /// Time without a byte from or to the provider.
    pub idle: Option<Duration>,
    /// Time for the whole call.
    pub total: Option<Duration>,
}

impl Plan {
    /// Returns the maximum number of bytes that all gathered bodies together may take.
    pub fn gathered_bytes(&self) -> usize {
        bytes(self.limits.gathered.bytes())
    }

    /// Returns `true` if a call with this method goes on although its client has closed the connection.
    pub fn finishes_without_client(&self, method: Method) -> bool {
        self.on_client_close.map_or(!method.is_safe(), |choice| choice == OnClientClose::Finish)
    }

    /// Returns the listener with that address, if the plan still has it.
    pub fn listener(&self, address: ListenAddress) -> Option<&ListenerPlan> {
        self.listeners.iter().find(|listener| listener.address == address)
    }

    /// Returns the issuers whose tokens prove clients, and of several with the same keys the first.
    pub fn issuers(&self) -> Vec<Arc<Issuer>> {
        let mut issuers: Vec<Arc<Issuer>> = Vec::new();
        for issuer in self.listeners.iter().filter_map(|listener| listener.clients.as_ref()?.issuer()) {
            if !issuers.iter().any(|known| known.shares_keys(issuer)) {
                issuers.push(Arc::clone(issuer));
            }
        }
        issuers
    }

    /// Returns the number, among the upstreams of a view, of `provider` as that account reaches it, if the
    /// account has a client certificate.
    pub fn certified(&self, account: usize, provider: &str) -> Option<usize> {
        let is_it = |certified: &Certified| {
            certified.account == account && certified.upstream.stats.name() == provider
        };
        Some(self.providers.len() + self.certified.iter().position(is_it)?)
    }

    fn provider(&self, name: &str) -> Option<&Arc<UpstreamPlan>> {
        self.table.by_name(name.as_bytes()).map(|index| &self.providers[index])
    }
}

impl ListenerPlan {
    /// Returns `true` if `host`, the value of a `Host` field, names the gateway itself.
    pub fn is_own_host(&self, host: &[u8]) -> bool {
        self.own_hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    /// Returns `true` if `host`, the value of a `Host` field, is the address that the client has connected
    /// to, on a wildcard listener: every address of this machine names the gateway there. Only the connection
    /// knows its `local` one.
    pub fn is_own_address(&self, host: &[u8], local: impl FnOnce() -> Option<SocketAddr>) -> bool {
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        self.address.internet().is_some_and(|address| address.ip().is_unspecified())
            && Authority::parse(host, Some(80))
                .ok()
                .and_then(|authority| authority.socket_address())
                .is_some_and(|address| local().is_some_and(|local| canonical(local) == canonical(address)))
    }
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn ok_or_push<T>(result: Result<T, Vec<Problem>>, problems: &mut Vec<Problem>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(found) => {
            problems.extend(found);
            None
        }
    }
}
