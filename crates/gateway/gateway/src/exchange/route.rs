//! Routes requests: clients can name a provider in six ways, all on one port.
//!
//! 1. forward proxy: the target is in absolute-form, or the method is CONNECT;
//! 2. header fields: `x-egret-host` and `x-egret-scheme`, or the equivalent fields of other gateways;
//! 3. query parameters, where the listener allows them. They arrive here as header fields, see
//!    [`rewritten`](crate::exchange::rewritten);
//! 4. base URL: `Host` is the gateway's own and the first path segment is a provider's name;
//! 5. Host: any other value of `Host` names the destination;
//! 6. reverse: the listener has a fixed provider, which takes precedence over all else.
//!
//! Inside an intercepted tunnel there is one way only: the authority of the CONNECT.
//!
//! Header fields take precedence over the base URL: they are explicit, while a path may only look like one.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

use egret_clients::Clients;
use egret_http1::{Method, RequestHead, Span, TargetForm};
use egret_match::providers::Belongs;
use egret_match::rewrite::BaseUrl;
use egret_match::routing_fields::RoutingFields;
use egret_match::target::TargetError;
use egret_message::authority::{Authority, AuthorityError};
use egret_message::request_target::split_query;
use egret_message::{Origin, RequestId, Via, default_port};
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::{ListenerPlan, ListenerRouting, Plan};

use crate::downstream::connection::{ClientLeg, Inside};
use crate::exchange::forward::survey;
use crate::exchange::{identity, rewritten};
use crate::state::request::{Pools, RequestState};
use egret_upstream::{CallTarget, EmptyPath, HostOwner, KeptHost, NamedHosts, Upstream, View};

/// The destination of a request.
#[derive(Debug)]
pub(crate) enum Route {
    /// A provider, over a pooled connection.
    Forward(CallTarget),
    /// A tunnel, opened by CONNECT.
    Tunnel(Authority),
}

/// The connection that a request has arrived on, and the hosts that it may be for.
pub(crate) trait Origins {
    /// Returns the listener, if `plan` still has it.
    fn listener<'p>(&self, plan: &'p Plan) -> Option<&'p ListenerPlan>;

    /// Returns the tunnel that the request has arrived in, if the gateway serves it itself.
    fn inside(&self) -> Option<&Inside>;

    /// Returns the address that the client has connected to, if it is known.
    fn local_address(&self) -> Option<SocketAddr>;

    /// Returns the memory for a head that takes the place of the received one.
    fn pools(&self) -> &Pools;

    /// Returns the entry by which the gateway recognizes a request that has passed it.
    fn via(&self) -> &Via;

    /// Returns the name that the client of the request has proven to be one of `clients`, or the response
    /// that it gets if it has not.
    fn prove(&self, state: &mut RequestState, clients: &Clients) -> Result<Box<str>, Failure>;

    /// Gives the request an id, if requests have any: `received`, the client's own, or a new one.
    fn identify(&self, plan: &Plan, received: Option<&[u8]>, id: &mut RequestId);

    /// Returns the hosts that clients have named.
    fn hosts(&self) -> &NamedHosts;
}

impl Origins for ClientLeg {
    fn listener<'p>(&self, plan: &'p Plan) -> Option<&'p ListenerPlan> {
        self.connection.listener_in(plan)
    }

    fn inside(&self) -> Option<&Inside> {
        self.connection.inside()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        ClientLeg::local_address(self)
    }

    fn pools(&self) -> &Pools {
        &self.connection.worker.pools
    }

    fn via(&self) -> &Via {
        &self.connection.worker.shared.via
    }

    fn prove(&self, state: &mut RequestState, clients: &Clients) -> Result<Box<str>, Failure> {
        identity::prove(self, state, clients).map(|proven| proven.name().into())
    }

    fn identify(&self, plan: &Plan, received: Option<&[u8]>, id: &mut RequestId) {
        self.connection.worker.identify(plan, received, id);
    }

    fn hosts(&self) -> &NamedHosts {
        &self.connection.worker.hosts
    }
}

/// Routes the request in `state`, whose head is the one that the client has sent. The client proves who it
/// is, and routing parameters are replaced, where the listener wants that. Clients, `egret explain` and tests
/// all come here.
pub(crate) fn route<O: Origins>(
    origins: &O,
    state: &mut RequestState,
    view: &View,
) -> Result<Route, Failure> {
    state.consumer = Span::default();
    let listener = origins.listener(&view.plan);
    // A listener that is gone may have asked for a proof, which must not be recorded.
    let asks = listener.is_none_or(|listener| listener.clients.is_some());
    let routes_by_query = origins.inside().is_none()
        && listener.is_some_and(|listener| matches!(listener.routing, ListenerRouting::WithQuery));
    if (asks || routes_by_query || view.plan.named_fields.compat().is_listed())
        && let Err(failure) = prepare(origins, state, view, listener)
    {
        origins.identify(&view.plan, None, &mut state.request_id);
        return Err(failure);
    }
    let RequestState { input, request, request_id, consumer, .. } = state;
    let bytes = input.filled();
    let surveyed = survey(request, bytes, origins.via(), &view.plan.named_fields);
    let received = surveyed.as_ref().ok().and_then(RoutingFields::request_id);
    origins.identify(&view.plan, received.map(|id| id.of(bytes)), request_id);
    let fields = surveyed?;
    *consumer = fields.consumer().unwrap_or_default();
    RoutingInput { view, origins, request, bytes, fields: &fields }.route(listener)
}

/// Has the client prove who it is and rewrites the request, as the `listener` and `gateway.compat` want it.
/// Anything else sees the request only as it then is. Out of line, since most listeners want neither.
#[inline(never)]
fn prepare<O: Origins>(
    origins: &O,
    state: &mut RequestState,
    view: &View,
    listener: Option<&ListenerPlan>,
) -> Result<(), Failure> {
    let (plan, is_inside) = (&view.plan, origins.inside().is_some());
    let proven = match listener.map(|listener| listener.clients.as_deref()) {
        Some(None) => return rewritten::route_by_query(origins.pools(), state, listener, plan, is_inside),
        Some(Some(clients)) => origins.prove(state, clients).map(Some),
        None => Ok(None),
    };
    rewritten::admit(origins.pools(), state, plan, listener, is_inside, proven.as_ref().map(Option::as_deref))
}

/// The input of a routing decision.
struct RoutingInput<'a, O> {
    view: &'a View,
    origins: &'a O,
    request: &'a RequestHead,
    bytes: &'a [u8],
    fields: &'a RoutingFields,
}

impl<O: Origins> RoutingInput<'_, O> {
    /// Routes the request, which has arrived on this listener.
    fn route(&self, listener: Option<&ListenerPlan>) -> Result<Route, Failure> {
        let Some(listener) = listener else {
            // The listener may have served one provider only. Its connections must not reach others now.
            let detail = "the listener of this connection was removed by a reload: connect to another one";
            return Err(Failure::new(ErrorKind::UnknownProvider, detail));
        };
        if let Some(inside) = self.origins.inside() {
            return self.inside(listener, inside);
        }
        let absolute = match (self.request.target_form, self.request.authority) {
            (TargetForm::Absolute, Some(authority)) => Some((self.target_scheme(authority)?, authority)),
            _ => None,
        };
        if let Some(provider) = listener.provider {
            return self.reverse(listener, provider);
        }
        if self.request.method == Method::Connect {
            return self.tunnel();
        }
        match absolute {
            Some((tls, authority)) => self.absolute(listener, tls, authority),
            None => self.origin(listener),
        }
    }

    /// Returns `true` if the absolute-form target with this authority has the scheme `https`.
    fn target_scheme(&self, authority: Span) -> Result<bool, Failure> {
        // The authority follows `scheme://`.
        let scheme = Span { start: self.request.target.start, end: authority.start - 3 };
        parse_scheme(scheme.of(self.bytes))
    }

    fn reverse(&self, listener: &ListenerPlan, provider: usize) -> Result<Route, Failure> {
        if self.request.method == Method::Connect {
            let detail = "this listener serves one provider and does not open tunnels";
            return Err(Failure::new(ErrorKind::ConnectNotAllowed, detail));
        }
        let path = match self.request.authority {
            Some(authority) => Span { start: authority.end, end: self.request.target.end },
            None => self.request.target,
        };
        let provider = match listener.https_provider {
            Some(secure) if self.is_secure(listener)? => secure,
            _ => provider,
        };
        let mut forward = self.to_provider(provider, path)?;
        if let Some(host) = self.kept_host(listener) {
            forward.kept_host = keep(&forward.upstream, host, self.bytes)?;
        }
        Ok(Route::Forward(forward))
    }

    /// Returns `true` if the scheme is `https`, on a listener where it does not depend on the host.
    fn is_secure(&self, listener: &ListenerPlan) -> Result<bool, Failure> {
        match self.fields.scheme() {
            Some(scheme) => parse_scheme(scheme.of(self.bytes)),
            None => Ok(listener.secure),
        }
    }

    /// Returns the host that the client names, on a listener that forwards it to the provider.
    fn kept_host(&self, listener: &ListenerPlan) -> Option<Span> {
        if !listener.keep_host {
            return None;
        }
        let named = self.fields.host().or(self.request.authority).or(self.request.host);
        named.filter(|host| !host.is_empty())
    }

    /// Routes a request inside a tunnel that the gateway serves itself. The authority of the tunnel decides,
    /// and nothing in the request names another one.
    fn inside(&self, listener: &ListenerPlan, inside: &Inside) -> Result<Route, Failure> {
        if self.request.method == Method::Connect {
            let detail = "there is no tunnel inside a tunnel: send CONNECT on a connection of its own";
            return Err(Failure::new(ErrorKind::ConnectNotAllowed, detail));
        }
        if listener.provider.is_some() {
            let detail = "the listener of this connection serves one provider since a reload: connect again";
            return Err(Failure::new(ErrorKind::Misdirected, detail));
        }
        let target = self.request.target;
        let mut path = target;
        if let (TargetForm::Absolute, Some(authority)) = (self.request.target_form, self.request.authority) {
            if self.target_scheme(authority)? != inside.tls || !inside.is_named_by(authority.of(self.bytes)) {
                let detail =
                    format!("the target of a request in this tunnel must be at {}", inside.authority);
                return Err(Failure::new(ErrorKind::BadRequest, detail));
            }
            path = Span { start: authority.end, end: target.end };
        } else if let Some(host) = self.request.host
            && !inside.is_named_by(host.of(self.bytes))
        {
            let detail =
                format!("this tunnel leads to {}, and `Host` names another server", inside.authority);
            return Err(Failure::new(ErrorKind::Misdirected, detail));
        }
        let mut forward = self.to_host(inside.tls, &inside.text, path)?;
        forward.new_target |= path != target;
        if self.request.method == Method::Options && path.is_empty() {
            forward.empty_path = EmptyPath::Asterisk;
        }
        if self.request.host.is_some_and(|host| *host.of(self.bytes) == *forward.upstream.plan.host_field) {
            forward.has_own_host = true;
        }
        Ok(Route::Forward(forward))
    }

    fn tunnel(&self) -> Result<Route, Failure> {
        let authority = Authority::parse(self.request.target.of(self.bytes), None).map_err(bad_authority)?;
        Ok(Route::Tunnel(authority))
    }

    fn absolute(&self, listener: &ListenerPlan, tls: bool, authority: Span) -> Result<Route, Failure> {
        let target = self.request.target;
        let path = Span { start: authority.end, end: target.end };
        if self.is_own(listener, authority.of(self.bytes)) {
            return self.base_url(path);
        }
        let mut forward = self.to_host(tls, authority.of(self.bytes), path)?;
        forward.new_target = true;
        if self.request.method == Method::Options && path.is_empty() {
            forward.empty_path = EmptyPath::Asterisk;
        }
        Ok(Route::Forward(forward))
    }

    fn origin(&self, listener: &ListenerPlan) -> Result<Route, Failure> {
        let target = self.request.target;
        if let Some(host) = self.fields.host() {
            let tls = self.scheme_of(listener, host)?;
            return Ok(Route::Forward(self.to_host(tls, host.of(self.bytes), target)?));
        }
        let Some(host) = self.request.host else {
            let detail = "the request names no host: send Host, use an absolute-form target or a base URL";
            return Err(Failure::new(ErrorKind::BadRequest, detail));
        };
        if self.is_own(listener, host.of(self.bytes)) {
            return self.base_url(target);
        }
        let tls = self.scheme_of(listener, host)?;
        let mut forward = self.to_host(tls, host.of(self.bytes), target)?;
        if *host.of(self.bytes) == *forward.upstream.plan.host_field {
            forward.has_own_host = true;
        }
        Ok(Route::Forward(forward))
    }

    /// Returns `true` if `host` names the gateway itself.
    fn is_own(&self, listener: &ListenerPlan, host: &[u8]) -> bool {
        listener.is_own_host(host) || listener.is_own_address(host, || self.origins.local_address())
    }

    /// Routes `/provider/rest`: the first segment of `path` names the provider, which receives the rest.
    fn base_url(&self, path: Span) -> Result<Route, Failure> {
        let Some(BaseUrl { provider, rest }) = BaseUrl::of(&self.view.plan.table, path, self.bytes) else {
            return Err(self.unknown_provider());
        };
        let is_rewritten = self.view.plan.rewrites;
        Ok(Route::Forward(CallTarget { is_rewritten, ..self.to_provider(provider, rest)? }))
    }

    fn unknown_provider(&self) -> Failure {
        let names: Vec<&str> =
            self.view.plan.providers.iter().take(10).map(|provider| provider.stats.name()).collect();
        let known = if names.is_empty() {
            "no provider is configured".to_owned()
        } else {
            format!("known providers: {}", names.join(", "))
        };
        Failure::new(
            ErrorKind::UnknownProvider,
            format!("this is the gateway itself: the first path segment must be a provider's name ({known})"),
        )
    }

    /// Returns a call of `target`, which is relative to the URL of provider number `provider`. If the target
    /// belongs to a provider with a longer base path, the call is made to that one.
    fn to_provider(&self, provider: usize, target: Span) -> Result<CallTarget, Failure> {
        let upstreams = &self.view.upstreams;
        let prefix_of = |provider: usize| &upstreams[provider].plan.path_prefix;
        let is_new = target != self.request.target;
        if target.of(self.bytes) == b"*" && !prefix_of(provider).is_empty() {
            // The server as a whole is not below the provider's URL.
            let host = self.origins.hosts().other(self.view, upstreams[provider].plan.origin.clone());
            return Ok(CallTarget { new_target: is_new, ..CallTarget::whole(host, target) });
        }
        let (path, _) = split_query(target.of(self.bytes));
        let owners = self.view.plan.table.owners_beside(provider);
        let Belongs { provider, base_len } = owners.of_named(provider, path).map_err(misplaced)?;
        let upstream = Rc::clone(&upstreams[provider]);
        let new_target = is_new || !upstream.plan.path_prefix.is_empty();
        let empty_path = empty_path(base_len, path);
        Ok(CallTarget { empty_path, new_target, ..CallTarget::whole(upstream, after(target, base_len)) })
    }

    /// Returns a call of `target` at the host that is written as `text`: to the configured provider that the
    /// target belongs to, otherwise to the host itself.
    fn to_host(&self, tls: bool, text: &[u8], target: Span) -> Result<CallTarget, Failure> {
        let parse = || Authority::parse(text, Some(default_port(tls))).map_err(bad_authority);
        let number = match self.origins.hosts().owner(self.view, tls, text, parse)? {
            HostOwner::Other(upstream) => return Ok(CallTarget::whole(upstream, target)),
            HostOwner::Providers(number) => number,
        };
        let (owners, upstreams) = (self.view.plan.table.owners(number), &self.view.upstreams);
        if let Some(provider) = owners.sole() {
            return Ok(CallTarget::whole(Rc::clone(&upstreams[provider]), target));
        }
        let (path, _) = split_query(target.of(self.bytes));
        let Some(Belongs { provider, base_len }) = owners.of(path).map_err(misplaced)? else {
            let origin = Origin { tls, authority: parse()? };
            return Ok(CallTarget::whole(self.origins.hosts().other(self.view, origin), target));
        };
        let upstream = Rc::clone(&upstreams[provider]);
        let new_target = path[..base_len] != *upstream.plan.path_prefix;
        let empty_path = empty_path(base_len, path);
        Ok(CallTarget { empty_path, new_target, ..CallTarget::whole(upstream, after(target, base_len)) })
    }

    /// Returns `true` if the scheme for `host` is `https`. The scheme field decides, then the configured
    /// provider of that host, then the listener.
    fn scheme_of(&self, listener: &ListenerPlan, host: Span) -> Result<bool, Failure> {
        if let Some(scheme) = self.fields.scheme() {
            return parse_scheme(scheme.of(self.bytes));
        }
        if self.view.plan.providers.is_empty() {
            return Ok(listener.secure);
        }
        let authority = Authority::parse(host.of(self.bytes), Some(80)).map_err(bad_authority)?;
        Ok(self.view.plan.table.is_tls_host(&authority.host).unwrap_or(listener.secure))
    }
}

/// Returns the form in which an empty path is sent, if the first `base_len` bytes of `path` are the base
/// path.
fn empty_path(base_len: usize, path: &[u8]) -> EmptyPath {
    if base_len > 0 && base_len == path.len() { EmptyPath::Bare } else { EmptyPath::Slash }
}

/// Returns the span without its first `bytes` bytes.
fn after(span: Span, bytes: usize) -> Span {
    let Range { start, end } = span.range();
    Span::new((start + bytes).min(end), end)
}

/// Returns the `Host` to send to `upstream`, on a listener where the client may choose it.
fn keep(upstream: &Upstream, sent: Span, bytes: &[u8]) -> Result<Option<Box<KeptHost>>, Failure> {
    let Origin { tls, authority: own } = &upstream.plan.origin;
    let authority = Authority::parse(sent.of(bytes), Some(default_port(*tls))).map_err(bad_authority)?;
    if authority == *own {
        return Ok(None);
    }
    let is_known = upstream.plan.is_known_as(&authority.host);
    let name = authority.host.to_string().into();
    Ok(Some(Box::new(KeptHost { sent, port: authority.port, name, is_known })))
}

fn misplaced(why: TargetError) -> Failure {
    Failure::new(ErrorKind::BadRequest, why.to_string())
}

fn parse_scheme(scheme: &[u8]) -> Result<bool, Failure> {
    if scheme.eq_ignore_ascii_case(b"http") {
        Ok(false)
    } else if scheme.eq_ignore_ascii_case(b"https") {
        Ok(true)
    } else {
        Err(Failure::new(ErrorKind::BadRequest, "only the schemes http and https can be forwarded"))
    }
}

pub(crate) fn bad_authority(error: AuthorityError) -> Failure {
    Failure::new(ErrorKind::BadRequest, format!("invalid host: {error}"))
}

#[cfg(test)]
mod tests;
