//! Reports the destination of a request without sending it.

use std::borrow::Cow;
use std::fmt;

use egret_config::Problem;
use egret_http1::{HeadLimits, RequestHead, TargetForm};
use egret_match::matching::Question;
use egret_match::providers::Belongs;
use egret_match::router::Matches;
use egret_match::routing_fields::RoutingFields;
use egret_match::target::TargetError;
use egret_message::authority::{Authority, AuthorityError};
use egret_message::request_target::split_query;
use egret_message::{Origin, default_port};
use egret_remedy::Exchange;

use crate::config::Parts;
use crate::exchange::query::{Translated, translate};
use crate::plan::{ListenerPlan, OTHER_HOSTS, Plan};

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The provider's name, or `-` for a host that the config does not name.
    pub provider: String,
    /// `true` if it uses TLS.
    pub tls: bool,
    /// The host, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query, relative to the provider's URL.
    pub target: String,
}

/// The reason why a request has no destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveError {
    /// The request-target is not in absolute-form.
    NotAbsolute,
    /// The URL's scheme, or the one that a routing field names, is neither `http` nor `https`.
    Scheme,
    /// The host, as written, is not valid.
    Host(String, AuthorityError),
    /// The URL is the gateway's own, and its first segment, as written, names no provider.
    Provider(String),
    /// The path does not tell which of the providers at its host is meant.
    Target(TargetError),
    /// The routing parameters of the query are not valid, for this reason.
    Parameters(Cow<'static, str>),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("expected a whole URL, like `https://api.example.com/path`"),
            Self::Scheme => f.write_str("only the schemes http and https can be forwarded"),
            Self::Host(host, error) => write!(f, "`{host}` is not a valid host: {error}"),
            Self::Provider(name) => {
                write!(f, "this is the gateway itself, and `{name}` is not a provider's name")
            }
            Self::Target(error) => error.fmt(f),
            Self::Parameters(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ResolveError {}

/// The routes of a configuration.
#[derive(Debug)]
pub struct Routes(Plan);

impl Routes {
    /// Compiles the routes of a configuration, or returns its problems.
    pub fn of(parts: Parts<'_>) -> Result<Self, Vec<Problem>> {
        Plan::compile(parts, &[], 1, None).map(Self)
    }

    /// Returns the key and a description of each remedy of flow number `flow`.
    pub fn remedies(&self, flow: usize) -> impl Iterator<Item = (&str, String)> {
        self.0.flows.describe(flow)
    }

    /// Replaces the routing parameters of a request by header fields, if the listener that it names routes by
    /// them. The error explains what is wrong with them.
    pub fn translate(&self, head: &mut RequestHead, bytes: &mut Vec<u8>) -> Result<(), ResolveError> {
        let own = head.authority.and_then(|authority| self.own(authority.of(bytes)));
        // At any other host, the listener is unknown: the client may use any of them.
        let listener = own.or_else(|| self.0.listeners.iter().find(|listener| listener.provider.is_none()));
        let limits = HeadLimits::default();
        let translated = translate(listener, head, bytes, &limits)
            .map_err(|failure| ResolveError::Parameters(failure.detail))?;
        let Some(Translated { head, outcome }) = translated else { return Ok(()) };
        *bytes = head;
        outcome.map_err(|failure| ResolveError::Parameters(failure.detail))
    }

    /// Returns the listener that a client names by this authority.
    fn own(&self, authority: &[u8]) -> Option<&ListenerPlan> {
        self.0.listeners.iter().find(|listener| listener.is_own_host(authority))
    }

    /// Finds the flows that match a request.
    pub fn find(&self, question: Question<'_>, matches: &mut Matches) {
        self.0.flows.find(question, matches);
    }

    /// Runs the scripts of flow number `flow` on a request, and tells what each of its remedies does, if that
    /// depends on the request.
    pub fn rehearse<'e>(
        &'e self,
        flow: usize,
        matches: &'e Matches,
        exchange: &mut Exchange<'e>,
    ) -> Vec<String> {
        exchange.params = self.0.flows.params(matches);
        exchange.params.found = matches.iter().find(|found| found.flow() == flow);
        self.0.flows.rehearse(flow, exchange)
    }

    /// Returns the destination of a request with this head, which must be in absolute-form: the host that it
    /// names or, if that is the gateway itself, the provider that the client means. The error explains why
    /// there is none.
    pub fn resolve(&self, head: &RequestHead, bytes: &[u8]) -> Result<Resolved, ResolveError> {
        let (TargetForm::Absolute, Some(span)) = (head.target_form, head.authority) else {
            return Err(ResolveError::NotAbsolute);
        };
        let target = head.target.of(bytes);
        let authority_at = span.range().start - head.target.range().start;
        let scheme = &target[..authority_at.saturating_sub("://".len())];
        let rest = text(&target[authority_at + span.len()..]);
        let tls = is_tls(scheme)?;
        let authority = span.of(bytes);
        let Some(listener) = self.own(authority) else { return self.place(tls, authority, &rest) };
        let mut fields = RoutingFields::default();
        for field in &head.fields {
            let _ = fields.note(field, bytes) || fields.note_named(field, bytes, &self.0.named_fields);
        }
        let named = fields.scheme().map(|scheme| is_tls(scheme.of(bytes))).transpose()?;
        if let Some(provider) = listener.provider {
            let secure = listener.https_provider.filter(|_| named.unwrap_or(listener.secure));
            return self.provider(secure.unwrap_or(provider), &rest);
        }
        match fields.host() {
            Some(host) => {
                let host = host.of(bytes);
                let tls = match named {
                    Some(tls) => tls,
                    None => self.0.table.is_tls_host(&parse(host, false)?.host).unwrap_or(listener.secure),
                };
                self.place(tls, host, &rest)
            }
            None => self.base_url(&rest),
        }
    }

    /// Resolves a path on the gateway itself, whose first segment is a provider's name.
    fn base_url(&self, path: &str) -> Result<Resolved, ResolveError> {
        let bare = path.strip_prefix('/').unwrap_or(path);
        let (name, rest) = bare.split_at(bare.find(['/', '?']).unwrap_or(bare.len()));
        match self.0.table.by_name(name.as_bytes()) {
            Some(provider) => self.provider(provider, rest),
            None => Err(ResolveError::Provider(name.to_owned())),
        }
    }

    fn place(&self, tls: bool, authority: &[u8], rest: &str) -> Result<Resolved, ResolveError> {
        let origin = Origin { tls, authority: parse(authority, tls)? };
        let owners = self.0.table.origin_number(&origin).map(|number| self.0.table.owners(number));
        let (path, _) = split_query(rest.as_bytes());
        let belongs = owners.map_or(Ok(None), |owners| owners.of(path)).map_err(ResolveError::Target)?;
        Ok(match belongs {
            Some(Belongs { provider, base_len }) => self.relative(provider, &rest[base_len..]),
            None => resolved(OTHER_HOSTS, &origin, rest.to_owned()),
        })
    }

    /// Returns the destination of `rest`, which follows the URL of provider number `provider`.
    fn provider(&self, provider: usize, rest: &str) -> Result<Resolved, ResolveError> {
        let (path, _) = split_query(rest.as_bytes());
        let belongs = self.0.table.owners_beside(provider).of_named(provider, path);
        let Belongs { provider, base_len } = belongs.map_err(ResolveError::Target)?;
        Ok(self.relative(provider, &rest[base_len..]))
    }

    fn relative(&self, provider: usize, target: &str) -> Resolved {
        let provider = &self.0.providers[provider];
        resolved(provider.stats.name(), &provider.origin, target.to_owned())
    }
}

fn resolved(name: &str, origin: &Origin, target: String) -> Resolved {
    let target = if target.starts_with('/') { target } else { format!("/{target}") };
    Resolved {
        provider: name.to_owned(),
        tls: origin.tls,
        host: origin.authority.host.to_string(),
        port: origin.authority.port,
        target,
    }
}

fn parse(authority: &[u8], tls: bool) -> Result<Authority, ResolveError> {
    Authority::parse(authority, Some(default_port(tls)))
        .map_err(|error| ResolveError::Host(text(authority), error))
}

fn is_tls(scheme: &[u8]) -> Result<bool, ResolveError> {
    match scheme.to_ascii_lowercase().as_slice() {
        b"http" => Ok(false),
        b"https" => Ok(true),
        _ => Err(ResolveError::Scheme),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use egret_accounts::AccountConfigs;
    use egret_diagnosis::{Exports, TrafficConfig};
    use egret_http1::HeadLimits;
    use egret_quota::{QuotaConfigs, Stores};
    use egret_store::SharedState;

    use super::*;
    use crate::config::{GatewayConfig, ListenConfig, Providers};
    use crate::fixture::Fixture;

    const OWN: &str = "127.0.0.1:8000";
    const REVERSE: &str = "127.0.0.1:8002";

    fn config() -> (GatewayConfig, Providers) {
        let listen = |address: &str, provider: Option<&str>| ListenConfig {
            provider: provider.map(str::to_owned),
            https_provider: provider.map(|_| "stripe".to_owned()),
            ..ListenConfig::from(address.parse::<std::net::SocketAddr>().unwrap())
        };
        let own = ListenConfig { route_by_query: true, ..listen(OWN, None) };
        let listen = vec![own, listen(REVERSE, Some("maps"))];
        let providers = serde_json::json!({
            "maps": { "url": "http://maps.example:8080/v2/" },
            "stripe": { "url": "https://api.stripe.example" },
        });
        (GatewayConfig { listen, ..GatewayConfig::default() }, serde_json::from_value(providers).unwrap())
    }

    fn resolve(url: &str, fields: &str) -> Result<Resolved, ResolveError> {
        let (config, providers) = config();
        let bytes = format!("GET {url} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
        let (mut head, mut bytes) = (RequestHead::new(), bytes);
        head.parse(&bytes, &HeadLimits::default()).unwrap();
        let parts = Parts {
            gateway: &config,
            providers: &providers,
            quotas: &QuotaConfigs::default(),
            accounts: &AccountConfigs::default(),
            flows: &[],
            stores: Stores::default(),
            shared: SharedState::default(),
            data_dir: None,
            exports: &Exports::default(),
            interception: None,
            inherited: &[],
            traffic: TrafficConfig::default(),
            isolated: false,
        };
        let routes = Routes::of(parts).unwrap();
        routes.translate(&mut head, &mut bytes)?;
        routes.resolve(&head, &bytes)
    }

    #[test]
    fn a_url_resolves_as_a_request_is_routed() {
        for (url, fields, provider, target) in [
            ("https://API.stripe.example/v1/a?b", "", "stripe", "/v1/a?b"),
            ("http://api.stripe.example/", "", "-", "/"),
            ("https://other.example?q", "", "-", "/?q"),
            ("http://maps.example:8080/v2/a", "", "maps", "/a"),
            ("http://maps.example:8080/v2", "", "maps", "/"),
            ("http://maps.example:8080/v20", "", "-", "/v20"),
            ("http://127.0.0.1:8000/stripe/v1/a?b", "", "stripe", "/v1/a?b"),
            ("http://localhost:8000/maps", "", "maps", "/"),
            ("http://127.0.0.1:8002/x", "", "maps", "/x"),
            ("http://127.0.0.1:8002/x", "x-egret-scheme: https\r\n", "stripe", "/x"),
            ("http://127.0.0.1:8000/x", "x-egret-host: api.stripe.example\r\n", "stripe", "/x"),
            ("http://127.0.0.1:8000/v2/x?y", "x-egret-host: maps.example:8080\r\n", "maps", "/x?y"),
            ("http://maps.example:8080/v3/a", "", "-", "/v3/a"),
            ("http://127.0.0.1:8000/v2/x?egret_host=maps.example:8080&y", "", "maps", "/x?y"),
            ("http://127.0.0.1:8000/x?lunar_original_host=api.stripe.example", "", "stripe", "/x"),
            ("http://127.0.0.1:8000/x?egret_host=b.example&egret_scheme=https", "", "-", "/x"),
            ("http://maps.example:8080/v2?a", "", "maps", "/?a"),
            (
                "http://127.0.0.1:8000/x",
                "x-egret-host: other.example\r\nx-egret-scheme: https\r\n",
                "-",
                "/x",
            ),
        ] {
            let found = resolve(url, fields).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!((found.provider.as_str(), found.target.as_str()), (provider, target), "{url}");
            let Resolved { host, port, target, .. } = found;
            assert_eq!((format!("{host}:{port}"), target), routed(url, fields), "{url}");
        }
    }

    /// Returns the destination to which the gateway sends the request of a client that is configured with
    /// that URL, and the target that its flows see.
    fn routed(url: &str, fields: &str) -> (String, String) {
        let (config, providers) = config();
        let (listener, own) =
            if url.contains(REVERSE) { (REVERSE, true) } else { (OWN, url.contains(":8000/")) };
        let (_, rest) = url.split_once("://").unwrap();
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = if own { path } else { url };
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        let mut fixture = Fixture::new(&config, &providers, listener.parse().unwrap());
        let to = fixture.forward(request.as_bytes(), |_| ()).unwrap();
        let target = text(to.target(request.as_bytes()));
        let slash = if target.starts_with('/') { "" } else { "/" };
        let seen = format!("{slash}{target}");
        (to.to_string().split_once("://").unwrap().1.to_owned(), seen)
    }

    #[test]
    fn what_goes_nowhere_says_why() {
        for (url, message) in [
            ("http://127.0.0.1:8000/strip/x", "`strip` is not a provider's name"),
            ("ftp://other.example/", "only the schemes http and https"),
            ("http://0x7f.1/", "is not a valid host"),
            ("http://127.0.0.1:8000/?egret_host=a&egret_host=b", "names the host more than once"),
        ] {
            assert!(resolve(url, "").unwrap_err().to_string().contains(message), "{url}");
        }
        assert!(resolve("/path", "").unwrap_err() == ResolveError::NotAbsolute);
    }
}
