//! A worker with one client and no traffic, for route tests and the instruction bench.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use egret_accounts::{Account, AccountConfigs};
use egret_cache::{CacheKey, KeyContext, Lookup, Policy};
use egret_clock::Timestamp;
use egret_diagnosis::{Exports, TrafficConfig};
use egret_export::access_log::AccessLog;
use egret_flow::config::FlowConfig;
use egret_http1::{Edits, HeadLimits};
use egret_leg::Leg;
use egret_match::expression::Expression;
use egret_match::matching::MatchInput;
use egret_match::router::{Match, Matches};
use egret_message::authority::Authority;
use egret_message::{ListenAddress, ReceivedMessage, Via};
use egret_net::dns::Resolver;
use egret_net::event_loop::{EventLoop, Socket};
use egret_net::os::kernel::{TcpListener, TcpStream};
use egret_observe::failure::Failure;
use egret_plan::config::{GatewayConfig, Parts, Providers, RequestIdsConfig};
use egret_plan::{ListenerRouting, Plan};
use egret_prices::PricesConfig;
use egret_quota::{QuotaConfigs, Stores};
use egret_remedy::{Exchange, PendingChanges};
use egret_store::SharedState;
use tokio::sync::mpsc;

use crate::downstream::connection::{ClientConnection, ClientLeg, Inside, Redirected};
use crate::downstream::redirect;
use crate::exchange::forward::{Disclosed, edit_request};
use crate::exchange::route::{Route, route};
use crate::state::request::RequestState;
use crate::worker::{Inbox, Shared, Worker};

/// A worker with one client.
#[derive(Debug)]
pub struct Fixture {
    client: ClientLeg,
    state: Box<RequestState>,
    edits: Edits,
    /// The last field, because the client's socket belongs to it and must be dropped first.
    _event_loop: EventLoop,
}

/// The destination of a request.
#[derive(Debug)]
pub struct Destination(Route);

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Route::Forward(forward) => {
                let origin = &forward.upstream.plan.origin;
                write!(f, "{}://{}", if origin.tls { "https" } else { "http" }, origin.authority)
            }
            Route::Tunnel(authority) => write!(f, "tunnel to {authority}"),
        }
    }
}

/// The identity of a call, independent of the way in which the client named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The provider that it belongs to, or `-` for a host that is not a provider's.
    pub provider: String,
    /// The key under which a cache stores the response.
    pub key: Option<CacheKey>,
    /// The flows that match it.
    pub flows: Vec<usize>,
    /// Its quota group, made of everything that a `group_by` may name.
    pub group: String,
    /// The accounts whose credentials may be sent with it.
    pub accounts: Vec<String>,
}

impl Fixture {
    /// Creates a client accepted by `listener`, one of the addresses in `config`, which are not bound. For
    /// tests only: panics if there are no sockets or the config is invalid.
    pub fn new(config: &GatewayConfig, providers: &Providers, listener: ListenAddress) -> Self {
        Self::with_flows(config, providers, (&AccountConfigs::default(), &[]), listener)
    }

    /// Does the same, with accounts and flows.
    #[expect(clippy::expect_used, reason = "for tests and benches alone")]
    pub fn with_flows(
        config: &GatewayConfig,
        providers: &Providers,
        (accounts, flows): (&AccountConfigs, &[FlowConfig]),
        listener: ListenAddress,
    ) -> Self {
        let event_loop = EventLoop::new().expect("an event loop");
        // The ids of requests are random.
        let request_ids = RequestIdsConfig { enabled: false, ..config.request_ids.clone() };
        let config = &GatewayConfig { request_ids, ..config.clone() };
        let parts = Parts {
            gateway: config,
            providers,
            quotas: &QuotaConfigs::default(),
            accounts,
            prices: &PricesConfig::default(),
            flows,
            stores: Stores::default(),
            shared: SharedState::default(),
            data_dir: None,
            exports: &Exports::default(),
            interception: None,
            inherited: &[],
            traffic: &TrafficConfig::default(),
            isolated: false,
        };
        let plan = Plan::compile(parts, &[], 1, None).expect("a good config");
        let client = event_loop.block_on(async {
            let resolver = Resolver::start(&config.dns).expect("a resolver");
            let access_log = AccessLog::start(&config.access_log).expect("an access log");
            let (mut shared, boxes) = Shared::new(1, resolver, access_log, parts.traffic);
            shared.via = Via::new("egret-0");
            let Inbox { records, .. } = boxes.into_iter().next().expect("one of each");
            let worker =
                Worker::new(0, Arc::new(shared), Arc::new(plan), records, mpsc::unbounded_channel().0);
            let accepting = TcpListener::bind("127.0.0.1:0").expect("a socket");
            let socket =
                TcpStream::connect(accepting.local_addr().expect("an address")).and_then(Socket::new);
            let connection = ClientConnection::internal(&worker, listener, None);
            ClientLeg::new(connection, Leg::plain(socket.expect("a socket")))
        });
        let mut state = Box::<RequestState>::default();
        client.connection.worker.pools.buffers.lend(&mut state.input);
        Self { client, state, edits: Edits::new(), _event_loop: event_loop }
    }

    /// Assigns the following requests to a different listener.
    pub fn listen(&mut self, listener: ListenAddress) {
        let client = self.accept(listener);
        let view = client.worker.view();
        let redirects = view
            .plan
            .listener(listener)
            .is_some_and(|listener| matches!(listener.routing, ListenerRouting::Redirected));
        let destination = SocketAddr::from(([192, 0, 2, 1], 80));
        if redirects {
            client.redirect(Redirected::Requests(destination));
        }
    }

    /// Assigns the following requests to an intercepted tunnel on a listener, with TLS inside if `tls`. For
    /// tests only: panics if `authority`, of its CONNECT, is invalid.
    #[expect(clippy::expect_used, reason = "for tests alone")]
    pub fn tunnel(&mut self, listener: ListenAddress, authority: &str, tls: bool) {
        let authority = Authority::parse(authority.as_bytes(), None).expect("a good authority");
        self.accept(listener).enter(Inside::new(authority, tls));
    }

    /// Makes the client one that `listener` has accepted.
    fn accept(&mut self, listener: ListenAddress) -> &ClientConnection {
        let worker = Rc::clone(&self.client.connection.worker);
        self.client.connection = Rc::new(ClientConnection::internal(&worker, listener, None));
        &self.client.connection
    }

    /// Parses, routes and edits `request`, a whole head, and passes the forwarded head to `send` piece by
    /// piece. The error is the slug of the response that the client would get.
    pub fn forward(&mut self, request: &[u8], send: impl FnMut(&[u8])) -> Result<Destination, &'static str> {
        let route = self.route(request)?;
        if let Route::Forward(forward) = &route {
            let RequestState { input, request, .. } = &*self.state;
            let via = &self.client.connection.worker.shared.via;
            edit_request(request, input.filled(), forward, via, Disclosed::default(), None, &mut self.edits);
            request.render(input.filled(), &self.edits).for_each_piece(send);
        }
        Ok(Destination(route))
    }

    /// Returns the identity of the call that `request`, a whole head, asks for, or `None` for a tunnel.
    /// `expression` computes its quota group. The error is the slug of the response that the client would
    /// get.
    pub fn identify(
        &mut self,
        request: &[u8],
        cache: &Policy,
        expression: &Expression<String>,
    ) -> Result<Option<Identity>, &'static str> {
        let Route::Forward(forward) = self.route(request)? else { return Ok(None) };
        let request = self.state.input.filled();
        let plan = &self.client.connection.worker.view().plan;
        let (mut matches, mut draft) = (Matches::default(), PendingChanges::default());
        let received = ReceivedMessage { head: &self.state.request, bytes: request, body: None };
        let now = Timestamp::default();
        let destination = forward.destination();
        let target = forward.target.of(request);
        let mut exchange = Exchange::new(now, destination, received, target, &mut draft);
        let question = MatchInput { request: &exchange.request(), roll: 0, now, has_body: true };
        plan.flows.find(question, &mut matches);
        exchange.params = plan.flows.params(&matches);
        let place = KeyContext {
            base: destination.base,
            has_bare_base: destination.has_bare_base,
            kept_host: destination.kept_host,
            ..KeyContext::default()
        };
        let key = match cache.look_up(&exchange.request(), &place) {
            Lookup::Look(question) => Some(question.key),
            Lookup::Forward(_) | Lookup::OnlyIfCached => None,
        };
        let group = exchange.evaluate(expression).map_err(|_| "the expression failed")?;
        let is_sent =
            |account: &&Account| destination.takes_credentials && account.is_for(destination.provider);
        Ok(Some(Identity {
            provider: destination.provider.to_owned(),
            key,
            flows: matches.iter().map(Match::flow).collect(),
            group,
            accounts: plan
                .flows
                .accounts
                .iter()
                .filter(is_sent)
                .map(|account| account.name().to_owned())
                .collect(),
        }))
    }

    /// Parses and routes a request.
    fn route(&mut self, request: &[u8]) -> Result<Route, &'static str> {
        let slug = |failure: Failure| failure.kind.slug();
        let Self { client, state, .. } = self;
        state.input.clear();
        client.connection.worker.pools.buffers.replace_front(&mut state.input, 0, request);
        let parsed = state.request.parse(state.input.filled(), &HeadLimits::default());
        parsed.map_err(Failure::bad_request).map_err(slug)?;
        if let Some(Redirected::Requests(destination)) = client.connection.redirected() {
            redirect::enter(client, destination, &state.request, state.input.filled());
        }
        let view = client.connection.worker.view();
        route(&*client, state, &view).map_err(slug)
    }
}
