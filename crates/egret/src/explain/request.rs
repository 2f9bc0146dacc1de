//! The request that a client would send, from the words of a command line.

use std::fmt::Write;

use egret_flow::config::FlowConfig;
use egret_gateway::{Asked, NotOneRequest, Rehearsal, Rehearsed, Tunnel};
use egret_message::ListenAddress;
use egret_settings::failure::Failure;

/// A request in the words of a command line.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeRequest<'a> {
    pub method: &'a str,
    /// A whole URL, a path of the gateway's own, or the authority of a CONNECT.
    pub url: &'a str,
    /// Header fields, as `name: value`.
    pub fields: &'a [String],
    pub body: Option<&'a str>,
    pub consumer: Option<&'a str>,
    /// The listener that receives it, unless the URL decides.
    pub listener: Option<ListenAddress>,
}

/// The parts of a request that depend on the way to the gateway.
struct Way {
    listener: ListenAddress,
    /// The tunnel that the request is sent in: the authority, and `true` for TLS.
    tunnel: Option<(String, bool)>,
    /// `true` for a CONNECT, which the client sends or the gateway puts in its place.
    is_connect: bool,
    target: String,
    host: String,
}

impl Way {
    /// Creates a way without a tunnel.
    fn plain(listener: ListenAddress, target: String, host: String) -> Self {
        Self { listener, tunnel: None, is_connect: false, target, host }
    }

    /// Creates a CONNECT.
    fn connect(listener: ListenAddress, authority: String) -> Self {
        Self { is_connect: true, ..Self::plain(listener, authority.clone(), authority) }
    }
}

impl ProbeRequest<'_> {
    /// Asks what the gateway would do with the request.
    pub fn ask(&self, rehearsal: &Rehearsal, flows: &[FlowConfig]) -> Result<Rehearsed, Failure> {
        let mut words =
            self.fields.iter().map(String::as_str).chain([self.method, self.url]).chain(self.consumer);
        if words.any(|word| word.contains(['\r', '\n'])) {
            return Err(not_one_request());
        }
        let way = self.way(rehearsal)?;
        let message = self.message(&way);
        let asked = Asked {
            listener: way.listener,
            tunnel: way.tunnel.as_ref().map(|(authority, tls)| Tunnel { authority, tls: *tls }),
            message: message.as_bytes(),
            client: self.consumer,
        };
        rehearsal.rehearse(flows, &asked).map_err(|NotOneRequest| not_one_request())
    }

    /// Decides which listener the client uses, and for what: as the provider's base URL, or as a proxy.
    fn way(&self, rehearsal: &Rehearsal) -> Result<Way, Failure> {
        let url = self.url;
        if let Some(address) = self.listener.filter(|address| !rehearsal.has_listener(*address)) {
            return Err(Failure::Misused(format!("the config has no listener at {address}")));
        }
        let usual = self.listener.or_else(|| rehearsal.usual_listener());
        let usual = usual.ok_or_else(|| Failure::misused("the config has no listener"))?;
        if self.method == "CONNECT" {
            return Ok(Way::connect(usual, url.to_owned()));
        }
        let Some((scheme, rest)) = url.split_once("://").filter(|_| !url.starts_with('/')) else {
            return Ok(self.entered(rehearsal, Way::plain(usual, url.to_owned(), usual.authority())));
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let origin_form = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let host = authority.to_owned();
        if let Some(own) = rehearsal.listener_named(authority) {
            let listener = self.listener.unwrap_or(own);
            return Ok(self.entered(rehearsal, Way::plain(listener, origin_form, host)));
        }
        let tls = scheme.eq_ignore_ascii_case("https");
        if !tls && !scheme.eq_ignore_ascii_case("http") {
            return Ok(Way::plain(usual, url.to_owned(), host));
        }
        if rehearsal.is_redirected(usual) && !tls {
            return Ok(self.entered(rehearsal, Way::plain(usual, origin_form, host)));
        }
        if rehearsal.serves_tunnel(usual, authority, tls) {
            let tunnel = Some((host.clone(), tls));
            return Ok(Way { tunnel, ..Way::plain(usual, origin_form, host) });
        }
        if rehearsal.is_tunnelled(usual) {
            let has_port = authority.contains(':') && !authority.ends_with(']');
            let port = if has_port { String::new() } else { format!(":{}", if tls { 443 } else { 80 }) };
            return Ok(Way::connect(usual, format!("{authority}{port}")));
        }
        Ok(Way::plain(usual, url.to_owned(), host))
    }

    /// Adds the tunnel that a redirected connection counts as: its `Host` decides.
    fn entered(&self, rehearsal: &Rehearsal, way: Way) -> Way {
        if !rehearsal.is_redirected(way.listener) {
            return way;
        }
        let named = self.fields.iter().filter_map(|field| field.split_once(':'));
        let mut named =
            named.filter(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, value)| value.trim());
        let authority = named.next_back().unwrap_or(&way.host).to_owned();
        Way { tunnel: Some((authority, false)), ..way }
    }

    /// Writes the message.
    fn message(&self, way: &Way) -> String {
        let method = if way.is_connect { "CONNECT" } else { self.method };
        let mut message = format!("{method} {} HTTP/1.1\r\n", way.target);
        if let Some(body) = self.body {
            let _ = write!(message, "Content-Length: {}\r\n", body.len());
        }
        let names_host = |field: &String| field.to_ascii_lowercase().starts_with("host:");
        if !self.fields.iter().any(names_host) {
            let _ = write!(message, "Host: {}\r\n", way.host);
        }
        let consumer = self.consumer.map(|consumer| format!("x-egret-consumer: {consumer}"));
        for field in self.fields.iter().chain(&consumer) {
            let _ = write!(message, "{field}\r\n");
        }
        message.push_str("\r\n");
        message.push_str(self.body.unwrap_or_default());
        message
    }
}

fn not_one_request() -> Failure {
    Failure::misused(
        "the method, the URL or a header field contains a line end: expected one request, like \
         `GET https://api.example.com/path`, and `-H 'name: value'`",
    )
}
