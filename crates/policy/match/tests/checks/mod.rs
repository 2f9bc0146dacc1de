//! Checks of patterns and of routing parameters. Shared by the property test, the fuzz target and its corpus.

use egret_clock::Timestamp;
use egret_http1::{HeadLimits, Progress, RequestHead};
use egret_match::Compat;
use egret_match::matching::{HostPattern, MatchConfig, MatchInput};
use egret_match::router::{MatchRule, Matches, Router};
use egret_match::routing_query::{ADDED_BYTES_MAX, ADDED_FIELDS_MAX, rewrite};
use egret_message::{Changes, Fields, Request};

/// Checks an input: a pattern, a host and a target, separated by NULs. Returns `true` if the pattern is valid
/// somewhere in a match.
pub fn matching(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let (pattern, host) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let target = parts.next().unwrap_or_default();
    routing_parameters(target);
    let (Ok(pattern), Ok(host)) = (std::str::from_utf8(pattern), std::str::from_utf8(host)) else {
        return false;
    };
    let any = |pattern: &str| [pattern].into_iter().collect();
    let configs = [
        MatchConfig { path: any(pattern), ..MatchConfig::default() },
        MatchConfig { host: any(pattern), ..MatchConfig::default() },
        MatchConfig { host: any(pattern), path: any("/{id}/*"), ..MatchConfig::default() },
        MatchConfig { query: [("q".to_owned(), any(pattern))].into(), ..MatchConfig::default() },
    ];
    let valid = configs.iter().filter(|config| agrees(config, host, target)).count();
    if let Ok(pattern) = HostPattern::parse(pattern)
        && pattern.matches(host)
    {
        // What is anchored matches nothing longer.
        let is_whole = !matches!(pattern, HostPattern::Exactly(_));
        assert!(is_whole || !pattern.matches(&format!("{host}.evil")), "{pattern:?} {host}");
    }
    valid > 0
}

/// Checks that the router and the flow itself agree on a request. Returns `false` if the config is invalid.
fn agrees(config: &MatchConfig, host: &str, target: &[u8]) -> bool {
    let Ok(router) = Router::compile(&[MatchRule { name: "f", matching: config }]) else { return false };
    let (path, query) = match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    let changes = Changes::default();
    let request = Request {
        provider: "-",
        tls: false,
        host,
        port: 80,
        method: b"GET",
        path,
        query,
        fields: Fields::new(&[], b"", &changes),
        upgrade: false,
        body: None,
    };
    let question = MatchInput { request: &request, roll: 0, now: Timestamp::default(), has_body: true };
    let mut matches = Matches::default();
    router.find(question, &mut matches);
    assert_eq!(matches.is_empty(), router.mismatch(0, question).is_some(), "{config:?} {request:?}");
    for found in matches.iter() {
        let parameters = router.parameters(found, &matches);
        let names = config.parameters();
        for (name, value) in parameters.iter() {
            assert!(names.iter().any(|known| known == name), "{name}");
            assert_eq!(parameters.get(name), Some(value), "{name}");
        }
    }
    true
}

/// Checks that a request with this target is rewritten to a head that has no routing parameters and nothing
/// else that is new.
fn routing_parameters(target: &[u8]) {
    let bytes = [b"GET ", target, b" HTTP/1.1\r\nHost: h\r\n\r\nbody"].concat();
    let mut request = RequestHead::new();
    if request.parse(&bytes, &HeadLimits::default()) != Ok(Progress::Complete) {
        return;
    }
    for compat in [Compat::Missing, Compat::new(Some(&[]))] {
        let Some(rewritten) = rewrite(&request, &bytes, compat, true) else { continue };
        let head = &rewritten.head;
        assert!(head.len() <= request.len + ADDED_BYTES_MAX);
        let mut again = RequestHead::new();
        let limits = HeadLimits { head: usize::MAX, fields: usize::MAX, start_line: usize::MAX };
        assert_eq!(again.parse(head, &limits), Ok(Progress::Complete), "{rewritten:?}");
        assert_eq!(again.len, head.len(), "{rewritten:?}");
        assert!(again.fields.len() <= request.fields.len() + ADDED_FIELDS_MAX, "{rewritten:?}");
        assert!(rewrite(&again, head, compat, true).is_none(), "{rewritten:?}");
        for field in &again.fields[request.fields.len()..] {
            assert!(field.name.of(head).starts_with(b"x-egret-"), "{rewritten:?}");
        }
    }
}
