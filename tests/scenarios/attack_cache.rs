//! Attacks of one cache client on the others: reading its response slowly or not at all, fields that the
//! provider does not see, fields that identify the caller, and another secret under the same name.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use egret_tests::cached::{flow, ok_response, slow, status, taken};
use egret_tests::egret::{Config, egret};
use egret_tests::http::Client;
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Peer, Provider, Request};
use egret_tests::wait::{Watched, until_true};
use socket2::{Domain, Socket, Type};

/// More than the system buffers between two sockets if one of them has a small window.
const LARGE: usize = 8 << 20;
const ROOMY: &str = "{ max_entry: 16MiB, memory: 256MiB }";

/// Framing of the provider's large body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framed {
    Length,
    Chunked,
    UntilClose,
}

/// Starts a provider that responds with a large, storable body, with the framing named by the path.
fn large() -> Provider {
    Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            let framed = match request.target() {
                "/length" => Framed::Length,
                "/chunked" => Framed::Chunked,
                _ => Framed::UntilClose,
            };
            if !send_large(peer, framed) || framed == Framed::UntilClose {
                return;
            }
        }
    })
}

fn send_large(peer: &mut Peer, framed: Framed) -> bool {
    let piece = vec![b'x'; 64 << 10];
    let (version, framing) = match framed {
        Framed::Length => ("1.1", format!("Content-Length: {LARGE}\r\n")),
        Framed::Chunked => ("1.1", "Transfer-Encoding: chunked\r\n".to_owned()),
        Framed::UntilClose => ("1.0", String::new()),
    };
    let is_chunked = framed == Framed::Chunked;
    peer.send(format!("HTTP/{version} 200 OK\r\nCache-Control: max-age=600\r\n{framing}\r\n"))
        && (0..LARGE / piece.len()).all(|_| {
            (!is_chunked || peer.send(format!("{:x}\r\n", piece.len())))
                && peer.send(&piece)
                && (!is_chunked || peer.send("\r\n"))
        })
        && (!is_chunked || peer.send("0\r\n\r\n"))
}

#[test]
fn a_slow_reader_of_a_stored_response_delays_nobody() {
    let origin = large();
    let egret = Config::with_origin(origin.url()).flows(flow(ROOMY)).start();
    for path in ["/length", "/chunked", "/close"] {
        let _slow = slow(egret.address(), path);
        for _ in 0..2 {
            assert_eq!(taken(egret.address(), path), (LARGE, "an orderly end"), "{path}");
        }
    }
    assert_eq!(origin.requests().len(), 3, "each was requested once");
}

#[test]
fn a_slow_reader_of_a_large_response_delays_no_other() {
    let origin = large();
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    for path in ["/chunked", "/close"] {
        let _slow = slow(egret.address(), path);
        for _ in 0..2 {
            assert_eq!(taken(egret.address(), path), (LARGE, "an orderly end"), "{path}");
        }
    }
}

#[test]
fn a_response_goes_on_into_the_cache_when_its_client_leaves() {
    let may_end = Arc::new(Watched::<bool>::default());
    let ends = Arc::clone(&may_end);
    let origin = Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            let framing = if request.target() == "/length" {
                "Content-Length: 11"
            } else {
                "Transfer-Encoding: chunked"
            };
            let [first, second] = if request.target() == "/length" {
                ["first", "second"]
            } else {
                ["5\r\nfirst\r\n", "6\r\nsecond\r\n0\r\n\r\n"]
            };
            peer.send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n{framing}\r\n\r\n{first}"));
            ends.until("the rest may come", |may_end| may_end.then_some(()));
            if !peer.send(second) {
                return;
            }
        }
    });
    let probe = Provider::plain();
    let config = Config::with_origin(origin.url()).provider("probe", probe.url()).gateway("workers: 1");
    let egret = config.flows(flow("{}")).start();
    for path in ["/length", "/chunked"] {
        may_end.change(|may_end| *may_end = false);
        let calls = origin.requests().len();
        let mut first = egret.client();
        first.get(egret.address(), &format!("/origin{path}")).head();
        first.reset();
        // There is one worker: after it has served others, it has noticed the closed connection.
        for _ in 0..3 {
            egret.client().get(egret.address(), "/probe/").response().assert_forwarded(200);
        }
        let mut second = egret.client();
        second.get(egret.address(), &format!("/origin{path}"));
        may_end.change(|may_end| *may_end = true);
        let second = second.any_response_to("GET");
        assert_eq!((second.text(), second.cut), ("firstsecond", false), "{path}");
        assert_eq!(origin.requests().len(), calls + 1, "{path}: it was asked for once");
    }
}

#[test]
fn a_client_that_leaves_before_its_response_does_not_spoil_the_cache() {
    let rest = "x".repeat(1000);
    let state = Arc::new(Watched::<(bool, bool)>::default());
    let (told, sent) = (Arc::clone(&state), rest.clone());
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            told.until("the client has left", |(has_left, _)| has_left.then_some(()));
            peer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 1005\r\n\r\nbegin");
            told.until("the rest may come", |(_, may_end)| may_end.then_some(()));
            if !peer.send(&sent) {
                return;
            }
        }
    });
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    for path in ["/1", "/2", "/3"] {
        state.change(|state| *state = (false, false));
        let calls = origin.requests().len();
        let mut first = egret.client();
        first.get(egret.address(), &format!("/origin{path}"));
        until_true("the provider has the request", || origin.requests().len() == calls + 1);
        first.reset();
        state.change(|state| *state = (true, false));
        let mut second = egret.client();
        second.get(egret.address(), &format!("/origin{path}"));
        state.change(|state| *state = (true, true));
        assert_eq!(second.any_response_to("GET").text(), format!("begin{rest}"), "{path}");
    }
}

/// Starts a provider whose response contains the values of `fields` in the request.
fn telling(fields: &'static str) -> Provider {
    Provider::with_responses(move |request| ok_response(fields, &received(request)))
}

fn received(request: &Request) -> String {
    let of_the_gateway = |name: &str| ["host", "via"].iter().any(|other| name.eq_ignore_ascii_case(other));
    let fields = request.fields.iter().filter(|(name, _)| !of_the_gateway(name));
    let lines: Vec<String> =
        fields.map(|(name, value)| format!("{}={value};", name.to_ascii_lowercase())).collect();
    lines.concat()
}

#[test]
fn a_field_that_is_not_forwarded_does_not_count_in_the_key() {
    let origin = telling("Cache-Control: public, max-age=600");
    let config = "{ key: { headers: [x-shade] } }";
    let egret = Config::with_origin(origin.url()).flows(flow(config)).start();
    for (path, field) in [("/a", "X-Tenant-Id: victim"), ("/b", "X-Shade: dark")] {
        let name = field.split(':').next().unwrap();
        let poison = egret.get_with(&format!("/origin{path}"), &format!("{field}\r\nConnection: {name}\r\n"));
        assert_eq!(poison.text(), "", "the provider serves no one");
        let own = egret.get_with(&format!("/origin{path}"), &format!("{field}\r\n"));
        assert_eq!(own.text(), field.replace(": ", "=").replace(name, &name.to_ascii_lowercase()) + ";");
    }
}

#[test]
fn a_field_not_forwarded_does_not_count_for_vary() {
    let origin = telling("Cache-Control: public, max-age=600\r\nVary: X-Shade");
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    assert_eq!(egret.get_with("/origin/a", "X-Shade: dark\r\nConnection: x-shade\r\n").text(), "");
    assert_eq!(egret.get_with("/origin/a", "X-Shade: dark\r\n").text(), "x-shade=dark;");
    assert_eq!(egret.get_with("/origin/a", "").text(), "");
    assert_eq!(origin.requests().len(), 2, "a client without the field gets the response fetched without it");
}

/// Fields by which existing APIs distinguish tenants, users and permissions.
const IDENTITIES: [&str; 32] = [
    "X-Scope-OrgID",
    "X-Grafana-Org-Id",
    "Amazon-Advertising-API-Scope",
    "x-gw-ims-org-id",
    "orgId",
    "Dropbox-API-Select-Admin",
    "X-Vault-Namespace",
    "DPoP",
    "X-Workspace-Id",
    "X-Team-Id",
    "X-Merchant-Id",
    "X-Role",
    "X-Company",
    "X-Impersonate",
    "X-Subject",
    "X-Principal",
    "X-Identity",
    "X-Login",
    "Sudo",
    "X-Site",
    "X-Region",
    "X-Store-Code",
    "X-Shop-Id",
    "X-Group",
    "X-Member",
    "X-Realm",
    "X-Zone",
    "X-Env",
    "X-Version",
    "Prefer",
    "Baggage",
    "X-Forwarded-For",
];

#[test]
fn tenants_that_differ_in_a_field_do_not_share_a_response() {
    let origin = telling("Cache-Control: public, max-age=600");
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    let shared: Vec<_> = IDENTITIES
        .into_iter()
        .filter(|name| {
            let of = |value: &str| {
                egret
                    .get_with("/origin/a", &format!("Authorization: Bearer a\r\n{name}: {value}\r\n"))
                    .text()
                    .to_owned()
            };
            of("one") == of("two")
        })
        .collect();
    assert!(shared.is_empty(), "{} of {} are shared: {shared:?}", shared.len(), IDENTITIES.len());
}

#[test]
fn a_field_with_another_url_does_not_poison_the_cache() {
    let origin = telling("Cache-Control: public, max-age=600");
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    for (path, field) in [
        ("/a", "X-Original-URL: /admin"),
        ("/b", "X-Rewrite-URL: /admin"),
        ("/c", "X-Forwarded-Host: evil.example"),
    ] {
        egret.get_with(&format!("/origin{path}"), &format!("{field}\r\n")).assert_forwarded(200);
        assert_eq!(egret.get_with(&format!("/origin{path}"), "").text(), "", "{field}");
    }
}

#[test]
fn a_new_secret_does_not_share_the_old_ones_entries() {
    let origin = telling("Cache-Control: public, max-age=600");
    let directory = Directory::default();
    let file = directory.write_secret("token", "TENANT-A-KEY");
    let flows = format!(
        "accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{}}}\" }} }}\n\
         flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}, {{ cache: {{}} }}] }}]\n",
        file.display()
    );
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let got = |path: &str| egret.get(path).text().to_owned();
    assert_eq!(got("/a"), "authorization=Bearer TENANT-A-KEY;");
    directory.write_secret("token", "TENANT-B-KEY");
    let mut tries = 0;
    until_true("the new secret is in force", || {
        tries += 1;
        got(&format!("/{tries}")) == "authorization=Bearer TENANT-B-KEY;"
    });
    assert_eq!(got("/a"), "authorization=Bearer TENANT-B-KEY;");
}

/// Starts a provider that responds with that status line and fields, and counts in the body.
fn counting(line: &'static str) -> Provider {
    let calls = Arc::new(Watched::<usize>::default());
    Provider::with_responses(move |_| {
        calls.change(|calls| *calls += 1);
        format!("HTTP/1.1 {line}\r\nContent-Length: 1\r\n\r\n{}", calls.read(|calls| *calls)).into_bytes()
    })
}

#[test]
fn an_error_that_says_how_long_it_is_fresh_is_stored() {
    let origin = counting("503 Service Unavailable\r\nCache-Control: max-age=600");
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    assert_eq!((egret.get("/a").text(), egret.get("/a").text()), ("1", "1"));
}

#[test]
fn uncacheable_statuses_are_not_stored() {
    let ttl = "{ ttl: { 4xx: 60s, 5xx: 60s }, override: true }";
    for line in [
        "428 Precondition Required\r\nCache-Control: max-age=600",
        "429 Too Many Requests\r\nCache-Control: max-age=600",
        "431 Request Header Fields Too Large\r\nCache-Control: max-age=600",
        "511 Network Authentication Required\r\nCache-Control: max-age=600",
    ] {
        let origin = counting(line);
        let egret = Config::with_origin(origin.url()).flows(flow(ttl)).start();
        assert_eq!((egret.get("/a").text(), egret.get("/a").text()), ("1", "2"), "{line}");
    }
}

#[test]
fn a_config_that_would_store_what_no_cache_may_is_refused() {
    let directory = Directory::default();
    for named in ["428", "429", "431", "511", "429-429"] {
        let config =
            Config::with_origin("http://127.0.0.1:9").flows(flow(&format!("{{ ttl: {{ {named}: 5s }} }}")));
        let file = directory.write("egret.yaml", config.yaml());
        let checked = run(egret(["check", file.to_str().unwrap()]).env("NO_COLOR", "1"));
        let stderr = String::from_utf8_lossy(&checked.stderr);
        assert_eq!(checked.status.code(), Some(2), "{named} is accepted: {stderr}");
        assert!(stderr.contains("RFC 6585"), "{stderr}");
    }
}

#[test]
fn a_stale_response_is_served_on_connection_close() {
    let origin = Provider::scripted(|peer| {
        // One call per connection, so no reused connection can be dead.
        if let Some(request) = peer.request()
            && request.values("if-none-match").is_empty()
        {
            // Stale on arrival.
            peer.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=10\r\nAge: 20\r\nETag: \"1\"\r\nConnection: close\r\n\
                 Content-Length: 4\r\n\r\nbody",
            );
        }
    });
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    assert_eq!(egret.get("/a").text(), "body");
    let stale = egret.get("/a");
    assert_eq!((stale.status, stale.text()), (200, "body"));
    assert!(status(&stale).starts_with("egret; fwd=stale; ttl=-"), "{stale:?}");
    assert!(status(&stale).ends_with("; detail=stale-if-error"), "{stale:?}");
}

#[test]
fn a_client_that_joined_a_large_response_gets_it_all() {
    let may_end = Arc::new(Watched::<bool>::default());
    let ends = Arc::clone(&may_end);
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.send(format!("3e8\r\n{}\r\n", "a".repeat(1_000)));
            ends.until("the rest may come", |may_end| may_end.then_some(()));
            for _ in 0..50 {
                peer.send(format!("fa0\r\n{}\r\n", "b".repeat(4_000)));
            }
            peer.send("0\r\n\r\n");
        }
    });
    let egret = Config::with_origin(origin.url()).flows(flow("{ max_entry: 4KiB }")).start();
    let mut clients = [egret.client(), egret.client(), egret.client()];
    for client in &mut clients {
        client.get(egret.address(), "/origin/a").head();
        client.bytes(5 + 1_000 + 2);
    }
    assert_eq!(origin.requests().len(), 1);
    may_end.change(|may_end| *may_end = true);
    for client in &mut clients {
        client.rest_of_chunks();
    }
}

#[test]
fn a_response_for_one_address_is_not_served_to_another() {
    let origin = Provider::with_responses(|request| {
        let address = request.values("x-forwarded-for").join(", ");
        ok_response("Cache-Control: max-age=600", &address)
    });
    let egret = Config::with_origin(origin.url()).gateway("forwarded_for: true").flows(flow("{}")).start();
    let from = |last: u8| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)).into()).unwrap();
        socket.connect(&egret.address().into()).unwrap();
        let request =
            format!("GET /origin/a HTTP/1.1\r\nHost: {}\r\nX-Api-Key: shop\r\n\r\n", egret.address());
        Client::over(socket.into()).send(request).response().text().to_owned()
    };
    for last in [1, 2, 1, 2] {
        assert_eq!(from(last), format!("127.0.0.{last}"));
    }
    assert_eq!(origin.requests().len(), 2);
}
