//! A worker with one client and no traffic: what route tests and the instruction bench stand on.

use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use egret_flow::accounts::AccountConfigs;
use egret_flow::diagnosis::Exports;
use egret_flow::quota::QuotaConfigs;
use egret_http1::{Edits, HeadLimits, RequestHead};

use crate::client::{Client, Place};
use crate::config::{GatewayConfig, Parts, Providers};
use crate::event_loop::{EventLoop, Socket};
use crate::exchange::access_log::AccessLog;
use crate::exchange::failure::Failure;
use crate::exchange::forward::{Via, edit_request, survey};
use crate::exchange::route::{Forward, Question, Route};
use crate::plan::Plan;
use crate::upstream::authority::Authority;
use crate::upstream::dns::Resolver;
use crate::upstream::stream::Stream;
use crate::worker::{Shared, Worker};

/// A worker with one client.
#[derive(Debug)]
pub struct Fixture {
    client: Client,
    request: RequestHead,
    edits: Edits,
    via: Via,
    /// Last, since the client's socket belongs to it.
    _event_loop: EventLoop,
}

/// Where a request went.
#[derive(Debug)]
pub struct Destination(Kind);

#[derive(Debug)]
enum Kind {
    Forward(Forward),
    Tunnel(Authority),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Forward(forward) => {
                let origin = &forward.upstream.plan.origin;
                write!(f, "{}://{}", if origin.tls { "https" } else { "http" }, origin.authority)
            }
            Kind::Tunnel(authority) => write!(f, "tunnel to {authority}"),
        }
    }
}

impl Destination {
    /// The path and query that flows see of `request`, the head that went there; nothing for a tunnel.
    pub fn target<'a>(&self, request: &'a [u8]) -> &'a [u8] {
        match &self.0 {
            Kind::Forward(forward) => forward.relative(request).of(request),
            Kind::Tunnel(_) => b"",
        }
    }
}

impl Fixture {
    /// A client that came in by `listener`, one of the addresses in `config`, which are not bound. Panics where the system has no
    /// sockets or the config is wrong: it is for tests alone.
    #[expect(clippy::expect_used, reason = "for tests and benches alone")]
    pub fn new(config: &GatewayConfig, providers: &Providers, listener: SocketAddr) -> Self {
        let event_loop = EventLoop::new().expect("an event loop");
        let parts = Parts {
            gateway: config,
            providers,
            quotas: &QuotaConfigs::default(),
            accounts: &AccountConfigs::default(),
            flows: &[],
            ledger: None,
            data_dir: None,
            exports: &Exports::default(),
        };
        let plan = Plan::compile(parts, &[], 1, None).expect("a good config");
        let client = event_loop.block_on(async {
            let resolver = Resolver::start(&config.dns).expect("a resolver");
            let access_log = AccessLog::start(&config.access_log).expect("an access log");
            let (shared, boxes) = Shared::new(1, resolver, access_log);
            let (_inbox, outbox) = boxes.into_iter().next().expect("one of each");
            shared.connections[0].fetch_add(1, Relaxed);
            let worker = Worker::new(0, Arc::new(shared), Arc::new(plan), outbox);
            let accepting = TcpListener::bind("127.0.0.1:0").expect("a socket");
            let socket =
                TcpStream::connect(accepting.local_addr().expect("an address")).and_then(Socket::new);
            Client::new(Place::new(worker), Stream::Plain(socket.expect("a socket")), listener)
        });
        let (request, edits, via) = (RequestHead::new(), Edits::new(), Via::new("egret-0"));
        Self { client, request, edits, via, _event_loop: event_loop }
    }

    /// Parses `request`, a whole head, routes and edits it, and hands what would be sent on to `send` piece by piece. An error is
    /// the slug of the answer that the client would get.
    pub fn forward(&mut self, request: &[u8], send: impl FnMut(&[u8])) -> Result<Destination, &'static str> {
        let slug = |failure: Failure| failure.kind.slug();
        self.request.parse(request, &HeadLimits::default()).map_err(Failure::bad_request).map_err(slug)?;
        let view = self.client.worker.view();
        let named = &view.plan.named_fields;
        let fields = survey(&mut self.request, request, &self.via, named).map_err(slug)?;
        let question = Question {
            view: &view,
            client: &self.client,
            request: &self.request,
            bytes: request,
            fields: &fields,
        };
        match question.route().map_err(slug)? {
            Route::Tunnel(authority) => Ok(Destination(Kind::Tunnel(authority))),
            Route::Forward(forward) => {
                let via = &self.via;
                edit_request(&self.request, request, &forward, via, None, None, &mut self.edits);
                self.request.render(request, &self.edits).for_each_piece(send);
                Ok(Destination(Kind::Forward(forward)))
            }
        }
    }
}
