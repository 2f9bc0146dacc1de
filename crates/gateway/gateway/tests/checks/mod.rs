//! Checks that one call keeps its identity, however a client names and spells it. Shared by the property
//! test, the fuzz target and its corpus.
//!
//! Each way of routing has an entry in [`Way::ALL`]. A new way joins the checks with that entry.

use std::sync::Arc;

use egret_accounts::AccountConfigs;
use egret_cache::{CacheConfig, KeySecret, Policy};
use egret_flow::config::FlowConfig;
use egret_gateway::fixture::{Fixture, Identity};
use egret_match::expression::{Expression, Scope, Stage};
use egret_message::ListenAddress;
use egret_plan::config::{GatewayConfig, Providers};
use serde_json::json;

const FORWARD: &str = "127.0.0.1:8000";
/// A listener that routes by query parameters.
const BY_QUERY: &str = "127.0.0.1:8200";
/// A listener for redirected connections.
const REDIRECTING: &str = "127.0.0.1:8300";

/// A call, with the provider that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The provider that it belongs to, or `-` for none.
    pub provider: &'static str,
    host: &'static str,
    port: u16,
    /// Path and query, as sent.
    pub path: &'static str,
    query: &'static str,
    /// Ways to name it by a provider: the provider's name or its listener, and the part of the path behind
    /// the provider's URL.
    named: &'static [(&'static str, &'static str)],
}

/// Calls at an origin shared by three providers, at one that a provider has for itself, and at one where a
/// provider has only a base path.
pub const CALLS: [Call; 9] = [
    call("api", "/v2/charges/7", "", &[("api", "/charges/7"), ("root", "/v2/charges/7")]),
    call(
        "api",
        "/v2/charges/a%2Fb",
        "a=%2F&b=1",
        &[("api", "/charges/a%2Fb"), ("root", "/v2/charges/a%2Fb")],
    ),
    call("api", "/v2", "", &[("root", "/v2")]),
    call("team", "/v2/teams/b/x", "q", &[("team", "/x"), ("api", "/teams/b/x"), ("root", "/v2/teams/b/x")]),
    call("root", "/admin/keys", "", &[("root", "/admin/keys")]),
    call("root", "/v20/~me/a_b-c.d", "", &[("root", "/v20/~me/a_b-c.d")]),
    Call { host: "alone.example", port: 80, ..call("alone", "/a/b", "x=1", &[("alone", "/a/b")]) },
    Call { host: "based.example", port: 80, ..call("based", "/base/a", "", &[("based", "/a")]) },
    Call { host: "based.example", port: 80, ..call("-", "/other/a", "", &[]) },
];

const fn call(
    provider: &'static str,
    path: &'static str,
    query: &'static str,
    named: &'static [(&'static str, &'static str)],
) -> Call {
    Call { provider, host: "api.example", port: 8080, path, query, named }
}

/// A way in which a client names a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// An absolute-form target.
    Absolute,
    /// The field `Host`.
    Host,
    /// Fields that name host and scheme.
    Fields(&'static str, &'static str),
    /// Query parameters that name host and scheme.
    Query(&'static str, &'static str),
    /// The base URL of a provider.
    BaseUrl,
    /// A listener of one provider.
    Listener,
    /// A listener of one provider that forwards the client's `Host`, here the provider's own.
    KeptHost,
    /// Inside an intercepted tunnel, with a target in origin-form.
    Tunnel,
    /// The same with a target in absolute-form.
    TunnelAbsolute,
    /// A connection that was redirected, whose first `Host` is the authority.
    Redirected,
}

impl Way {
    /// All ways.
    pub const ALL: [Self; 13] = [
        Self::Absolute,
        Self::Host,
        Self::Fields("x-egret-host", "x-egret-scheme"),
        Self::Fields("X-Lunar-Host", "X-Lunar-Scheme"),
        Self::Fields("Mashape-Host-Override", "Mashape-Upstream-Protocol"),
        Self::BaseUrl,
        Self::Listener,
        Self::KeptHost,
        Self::Query("egret_host", "egret_scheme"),
        Self::Query("lunar_original_host", "lunar_original_scheme"),
        Self::Tunnel,
        Self::TunnelAbsolute,
        Self::Redirected,
    ];
}

/// Numbers from which choices are made, one after the other. 0 once they are used up.
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % count.max(1)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A gateway without traffic, and the settings that identities are computed with.
pub struct Subject {
    fixture: Fixture,
    cache: Policy,
    expression: Expression<String>,
}

impl Default for Subject {
    fn default() -> Self {
        let listen = |port: u16, provider: &str, keep_host: bool| json!({ "address": format!("127.0.0.1:{port}"), "provider": provider, "keep_host": keep_host });
        let named = ["api", "root", "team", "alone", "based"];
        let mut listeners = vec![json!(FORWARD)];
        listeners.extend(named.iter().zip(8001..).map(|(name, port)| listen(port, name, false)));
        listeners.extend(named.iter().zip(8101..).map(|(name, port)| listen(port, name, true)));
        listeners.push(json!({ "address": BY_QUERY, "route_by_query": true }));
        listeners.push(json!({ "address": REDIRECTING, "redirect": true }));
        let config: GatewayConfig = serde_json::from_value(json!({ "listen": listeners })).unwrap();
        let providers: Providers = serde_json::from_value(json!({
            "root": { "url": "http://api.example:8080" },
            "api": { "url": "http://api.example:8080/v2/" },
            "team": { "url": "http://API.example:8080/v2/teams/b", "hosts": ["known.example"] },
            "alone": { "url": "http://alone.example" },
            "based": { "url": "http://based.example:80/base" },
        }))
        .unwrap();
        let account = |provider: &str| json!({ "provider": provider, "bearer": { "token": "${env:PATH}" } });
        let accounts: serde_json::Map<_, _> =
            named.iter().map(|name| (format!("of-{name}"), account(name))).collect();
        let accounts: AccountConfigs = serde_json::from_value(accounts.into()).unwrap();
        let flows: Vec<FlowConfig> = serde_json::from_value(json!([
            { "name": "all" },
            { "name": "charges", "match": { "provider": "api", "path": "/charges/{id}" } },
            { "name": "api", "match": { "provider": "api" } },
            { "name": "team", "match": { "provider": "team", "path": "/x" } },
            { "name": "admin", "match": { "provider": "root", "path": "/admin/*" } },
            { "name": "blocked", "match": { "path": "/a/b" } },
            { "name": "based", "match": { "provider": "based", "path": "/{id}" } },
            { "name": "host", "match": { "host": "*.example" } },
            { "name": "expression", "match": { "path": "regex:/(charges|a|teams)/.+" } },
            { "name": "star", "match": { "path": "/*/b", "host": "{name}.example" } },
            { "name": "hosts", "match": { "host": "regex:(api|based)\\.example", "path": "/*" } },
        ]))
        .unwrap();
        let fixture = Fixture::with_flows(&config, &providers, (&accounts, &flows), address(FORWARD));
        let cache = Policy::new(&CacheConfig::default(), "all", Arc::new(KeySecret::new(&[7; 32])));
        let source = "request.scheme + ' ' + request.host + ' ' + request.provider + ' ' + request.path";
        let expression =
            Expression::compile(source, Scope { stage: Stage::Request, parameters: &[] }).unwrap();
        Self { fixture, cache, expression }
    }
}

fn address(text: &str) -> ListenAddress {
    text.parse().unwrap()
}

impl Subject {
    /// Returns the identity of a request received by `listener`, or the slug of the error if it is rejected.
    pub fn identify(&mut self, listener: &str, request: &str) -> Result<Identity, &'static str> {
        let (listener, request) = (listener.to_owned(), request.to_owned());
        self.identify_sent(&Sent { listener, tunnel: None, request })
    }

    fn identify_sent(&mut self, sent: &Sent) -> Result<Identity, &'static str> {
        let Sent { listener, tunnel, request } = sent;
        match tunnel {
            Some(authority) => self.fixture.tunnel(address(listener), authority, false),
            None => self.fixture.listen(address(listener)),
        }
        let identity = self.fixture.identify(request.as_bytes(), &self.cache, &self.expression)?;
        Ok(identity.expect("no call here is a tunnel"))
    }

    /// Returns the identity of a call in its plainest form.
    pub fn plain(&mut self, call: Call) -> Identity {
        let Call { host, port, path, query, .. } = call;
        let mark = if query.is_empty() { "" } else { "?" };
        let request = format!("GET http://{host}:{port}{path}{mark}{query} HTTP/1.1\r\nHost: h\r\n\r\n");
        self.identify(FORWARD, &request).expect("a plain call is accepted")
    }

    /// Names and spells `call` in an equivalent way, by `choices`. Checks that the request is rejected or is
    /// the same call.
    pub fn same(&mut self, call: Call, way: Way, choices: &mut Choices<'_>) -> Result<(), &'static str> {
        let Some(sent) = sent(call, way, choices, equivalent) else { return Ok(()) };
        let expected = self.plain(call);
        assert_eq!(expected.provider, call.provider, "{call:?}");
        let found = self.identify_sent(&sent)?;
        assert_eq!(found, expected, "{way:?} {sent:?}");
        Ok(())
    }

    /// Spells `call` in a way that some provider may read as the same. Checks that the request is rejected or
    /// evades no rule of the plain call.
    pub fn no_evasion(
        &mut self,
        call: Call,
        way: Way,
        choices: &mut Choices<'_>,
    ) -> Result<(), &'static str> {
        let Some(sent) = sent(call, way, choices, alike) else { return Ok(()) };
        let expected = self.plain(call);
        let found = self.identify_sent(&sent)?;
        let evaded = expected.flows.iter().find(|flow| !found.flows.contains(flow));
        assert_eq!(evaded, None, "{way:?} {sent:?}");
        assert_eq!((&found.provider, &found.accounts), (&expected.provider, &expected.accounts), "{sent:?}");
        Ok(())
    }
}

/// A request, and where a client sends it.
#[derive(Debug)]
struct Sent {
    /// The listener that it connects to.
    listener: String,
    /// The authority of the intercepted tunnel in which it sends the request, if there is one.
    tunnel: Option<String>,
    request: String,
}

/// A function that spells a path differently.
type Spell = fn(&str, &mut Choices<'_>) -> String;

/// Returns what a client sends to name `call` in this way, or `None` if it cannot be named so.
fn sent(call: Call, way: Way, choices: &mut Choices<'_>, spell: Spell) -> Option<Sent> {
    let Call { host, port, path, query, named, .. } = call;
    let query = if query.is_empty() { String::new() } else { format!("?{}", octets(query, choices)) };
    let (mut listener, mut own, mut tunnel) = (FORWARD.to_owned(), String::new(), None);
    let authority = authority(host, port, choices);
    let text = match way {
        Way::Absolute => {
            let target = spell(path, choices);
            let scheme = choices.pick(&["http", "HTTP", "Http"]);
            format!("GET {scheme}://{authority}{target}{query} HTTP/1.1\r\nHost: h\r\n\r\n")
        }
        Way::Tunnel | Way::TunnelAbsolute => {
            // A CONNECT names the port in any case, and a `Host` inside need not be spelled alike.
            let spelled = self::authority(host, port, choices);
            tunnel = Some(if spelled.contains(':') { spelled } else { format!("{spelled}:80") });
            let origin = if way == Way::Tunnel { String::new() } else { format!("http://{authority}") };
            let target = spell(path, choices);
            let routing = "x-egret-host: evil.example\r\nx-egret-scheme: https\r\n";
            format!("GET {origin}{target}{query} HTTP/1.1\r\nHost: {authority}\r\n{routing}\r\n")
        }
        Way::Redirected => {
            REDIRECTING.clone_into(&mut listener);
            let target = spell(path, choices);
            let routing = "x-egret-host: evil.example\r\nx-egret-scheme: https\r\n";
            format!("GET {target}{query} HTTP/1.1\r\nHost: {authority}\r\n{routing}\r\n")
        }
        Way::Host => {
            format!("GET {}{query} HTTP/1.1\r\nHost: {authority}\r\n\r\n", spell(path, choices))
        }
        Way::Fields(host, scheme) => {
            own.push_str(FORWARD);
            let target = spell(path, choices);
            format!(
                "GET {target}{query} HTTP/1.1\r\nHost: {own}\r\n{host}: {authority}\r\n{scheme}: http\r\n\r\n"
            )
        }
        Way::Query(host, scheme) => {
            BY_QUERY.clone_into(&mut listener);
            let target = spell(path, choices);
            let mut pairs: Vec<String> = query
                .strip_prefix('?')
                .into_iter()
                .flat_map(|query| query.split('&'))
                .map(str::to_owned)
                .collect();
            for (name, value) in [(host, &*authority), (scheme, "http")] {
                let pair = format!("{}={}", octets(name, choices), octets(value, choices));
                pairs.insert(choices.below(pairs.len() + 1), pair);
            }
            format!("GET {target}?{} HTTP/1.1\r\nHost: {BY_QUERY}\r\n\r\n", pairs.join("&"))
        }
        Way::BaseUrl | Way::Listener | Way::KeptHost if named.is_empty() => return None,
        Way::BaseUrl => {
            let (name, rest) = choices.pick(named);
            let rest = spell(rest, choices);
            format!("GET /{name}{rest}{query} HTTP/1.1\r\nHost: {FORWARD}\r\n\r\n")
        }
        Way::Listener | Way::KeptHost => {
            let (name, rest) = choices.pick(named);
            let number = ["api", "root", "team", "alone", "based"].iter().position(|other| *other == name)?;
            let (first, host) =
                if way == Way::Listener { (8001, "any.example") } else { (8101, &*authority) };
            listener = format!("127.0.0.1:{}", first + number);
            format!("GET {}{query} HTTP/1.1\r\nHost: {host}\r\n\r\n", spell(rest, choices))
        }
    };
    Some(Sent { listener, tunnel, request: text })
}

fn authority(host: &str, port: u16, choices: &mut Choices<'_>) -> String {
    let host: String = host
        .chars()
        .map(|letter| if choices.below(4) == 1 { letter.to_ascii_uppercase() } else { letter })
        .collect();
    let dot = choices.pick(&["", "", "."]);
    let port = if port == 80 && choices.below(2) == 0 { String::new() } else { format!(":{port}") };
    format!("{host}{dot}{port}")
}

/// Returns an equivalent spelling by RFC 3986 §6.2.2: unreserved octets encoded, digits in either case, dot
/// segments.
fn equivalent(path: &str, choices: &mut Choices<'_>) -> String {
    let mut spelled = String::new();
    for segment in path.split('/').skip(1) {
        match choices.below(12) {
            1 => spelled.push_str("/."),
            2 => spelled.push_str("/%2e"),
            3 => spelled.push_str("/up/.."),
            4 => spelled.push_str("/up/%2E."),
            _ => {}
        }
        spelled.push('/');
        spelled.push_str(&octets(segment, choices));
    }
    spelled
}

/// Returns a spelling that some provider reads as the same path: an empty segment, a parameter, an encoded
/// slash or backslash.
fn alike(path: &str, choices: &mut Choices<'_>) -> String {
    let mut spelled = String::new();
    for segment in path.split('/').skip(1) {
        spelled.push_str(choices.pick(&["/", "/", "/", "//", "/./", "/up/../", "/up/..;/"]));
        spelled.push_str(&octets(segment, choices));
        spelled.push_str(choices.pick(&["", "", "", "", ";a=1"]));
    }
    // The first slash stays, or the result would not be a path.
    let (first, rest) = spelled.split_at(1);
    let rest = match choices.below(4) {
        // No provider reads one of two encoded slashes as a slash.
        1 if !path.contains("%2F") => rest.replacen('/', "%2f", 1),
        2 => rest.replacen('/', "%5C", 1),
        _ => rest.to_owned(),
    };
    first.to_owned() + &rest
}

fn octets(text: &str, choices: &mut Choices<'_>) -> String {
    let mut spelled = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '%' {
            let digits: String = letters.by_ref().take(2).collect();
            let digits = if choices.below(2) == 1 { digits.to_ascii_lowercase() } else { digits };
            spelled.push('%');
            spelled.push_str(&digits);
        } else if (letter.is_ascii_alphanumeric() || "-._~".contains(letter)) && choices.below(8) == 1 {
            let code = u32::from(letter);
            let encoded = if choices.below(2) == 1 { format!("%{code:02x}") } else { format!("%{code:02X}") };
            spelled.push_str(&encoded);
        } else {
            spelled.push(letter);
        }
    }
    spelled
}

/// Runs the checks with any bytes as choices. Returns `true` if the spelling was accepted.
pub fn identity(subject: &mut Subject, bytes: &[u8]) -> bool {
    let mut choices = Choices(bytes);
    let call = choices.pick(&CALLS);
    let way = choices.pick(&Way::ALL);
    if choices.below(2) == 0 {
        subject.same(call, way, &mut choices).is_ok()
    } else {
        subject.no_evasion(call, way, &mut choices).is_ok()
    }
}
