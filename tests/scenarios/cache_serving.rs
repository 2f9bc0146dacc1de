//! Stored responses while they are received for one client and served to others: whole, in part, during the
//! transfer, and when a client leaves, purges them, or loads another config.

use std::sync::Arc;

use egret_tests::cached::{figure, flow, ok_response, purge, slow, status, taken};
use egret_tests::egret::Config;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::{Watched, until_true};
use serde_json::json;

#[test]
fn a_large_response_is_the_same_from_the_cache_however_it_came() {
    let body: String =
        (0..400_000_u32).map(|number| char::from(b'a' + u8::try_from(number % 23).unwrap())).collect();
    let (length, chunked) = (ok_response("Cache-Control: max-age=60", &body), {
        let mut chunked =
            b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in body.as_bytes().chunks(7_001) {
            chunked.extend(format!("{:x}\r\n", piece.len()).into_bytes());
            chunked.extend(piece);
            chunked.extend(b"\r\n");
        }
        chunked.extend(b"0\r\n\r\n");
        chunked
    });
    let origin = Provider::with_responses(move |request| {
        if request.target() == "/length" { length.clone() } else { chunked.clone() }
    });
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    for path in ["/length", "/chunked"] {
        assert!(status(&egret.get(path)).contains("stored"));
        let mut client = egret.client();
        for _ in 0..3 {
            let again = client.get(egret.address(), &format!("/origin{path}")).response();
            assert_eq!((again.text() == body, again.field("content-length")), (true, Some("400000")));
            assert!(status(&again).starts_with("egret; hit"), "{again:?}");
        }
        let part = format!(
            "GET /origin{path} HTTP/1.1\r\nHost: {}\r\nRange: bytes=70000-200000\r\n\r\n",
            egret.address()
        );
        let part = client.send(part).response();
        assert_eq!((part.status, part.text() == &body[70_000..=200_000]), (206, true));
        let old = format!("GET /origin{path} HTTP/1.0\r\nHost: {}\r\n\r\n", egret.address());
        assert_eq!(egret.client().send(old).response().text(), body);
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn requests_share_a_response_as_it_arrives() {
    let may_end = Arc::new(Watched::<bool>::default());
    let ends = Arc::clone(&may_end);
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            ends.until("the rest may come", |may_end| may_end.then_some(()));
            peer.send("6\r\nsecond\r\n0\r\n\r\n");
        }
    });
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    let mut clients = [egret.client(), egret.client()];
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
        let head = client.head();
        assert_eq!((head.status, head.field("transfer-encoding")), (200, Some("chunked")));
        assert_eq!(client.bytes(10), b"5\r\nfirst\r\n");
    }
    may_end.change(|may_end| *may_end = true);
    for client in &mut clients {
        assert_eq!(client.bytes(16), b"6\r\nsecond\r\n0\r\n\r\n"[..16].to_vec());
    }
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(egret.get("/a").text(), "firstsecond");
}

#[test]
fn broken_large_or_abandoned_responses_are_not_stored() {
    let large = "x".repeat(5_000);
    let origin = Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            match request.target() {
                "/cut" => {
                    peer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\nhalf");
                    return;
                }
                "/large" => peer.send(ok_response("Cache-Control: max-age=60", &large)),
                // Too large, but the head does not show it.
                "/chunked" => peer.send(format!(
                    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n{large}\r\n0\r\n\r\n"
                )),
                _ => {
                    peer.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\nhalf");
                    peer.stall();
                    return;
                }
            };
        }
    });
    let config = Config::default().provider_with("origin", origin.url(), "timeouts: { idle: 500ms }");
    let egret = config.flows(flow("{ max_entry: 4KiB }")).start();
    let cut = egret.client().get(egret.address(), "/origin/cut").any_response_to("GET");
    assert!(cut.cut);
    assert!(status(&egret.get("/large")).contains("detail=too-large"));
    assert_eq!(egret.get("/chunked").body.len(), 5_000);
    // No client waits for the rest, and the provider does not send it.
    let mut left = egret.client();
    left.get(egret.address(), "/origin/left").head();
    left.bytes(4);
    left.reset();
    until_true("nothing is stored", || figure(&egret, "entries") == 0 && figure(&egret, "counts/miss") == 4);
    assert_eq!(figure(&egret, "bytes"), 0);
}

#[test]
fn waiters_for_a_large_response_get_the_providers() {
    let may_end = Arc::new(Watched::<bool>::default());
    let ends = Arc::clone(&may_end);
    let origin = Provider::scripted(move |peer| {
        while peer.request().is_some() {
            peer.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n",
            );
            peer.send(format!("{}\r\n", "a".repeat(1_000)));
            ends.until("the rest may come", |may_end| may_end.then_some(()));
            peer.send(format!("fa0\r\n{}\r\n0\r\n\r\n", "b".repeat(4_000)));
        }
    });
    let egret = Config::with_origin(origin.url()).flows(flow("{ max_entry: 4KiB }")).start();
    let mut first = egret.client();
    first.get(egret.address(), "/origin/a");
    origin.until_requested(1);
    let mut others: Vec<_> = (0..5).map(|_| egret.client()).collect();
    for client in &mut others {
        client.get(egret.address(), "/origin/a");
    }
    may_end.change(|may_end| *may_end = true);
    for client in others.iter_mut().chain([&mut first]) {
        let response = client.any_response_to("GET");
        assert_eq!((response.body.len(), response.cut), (5_000, false));
    }
}

#[test]
fn a_slow_reader_of_unstorable_content_delays_no_other() {
    const LEN: usize = 8 << 20;
    let origin = Provider::responding(ok_response("Cache-Control: max-age=60", &"x".repeat(LEN)));
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    let _slow = slow(egret.address(), "/a");
    for _ in 0..2 {
        assert_eq!(taken(egret.address(), "/a"), (LEN, "an orderly end"));
    }
    assert_eq!(figure(&egret, "counts/stored"), 0);
}

#[test]
fn a_client_that_takes_nothing_does_not_hold_its_providers_connection() {
    let body = "x".repeat(6 << 20);
    let origin = Provider::with_responses(move |request| {
        if request.target() == "/large" {
            ok_response("Cache-Control: max-age=60", &body)
        } else {
            ok_response("Cache-Control: no-store", "small")
        }
    });
    let config = Config::default().provider_with("origin", origin.url(), "pool: { connections: 1 }");
    let egret = config.flows(flow("{ max_entry: 8MiB, memory: 128MiB }")).start();
    let mut slow = egret.client();
    slow.get(egret.address(), "/origin/large").head();
    until_true("the connection is free", || egret.get("/a").status == 200);
    assert_eq!(slow.bytes(6 << 20).len(), 6 << 20);
    assert_eq!(origin.connections(), 1);
}

#[test]
fn the_config_limits_serving_stale_responses() {
    let origin = Provider::scripted(|peer| {
        if let Some(request) = peer.request()
            && request.values("if-none-match").is_empty()
        {
            peer.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=10\r\nAge: 20\r\nETag: \"1\"\r\nConnection: close\r\n\
                 Content-Length: 4\r\n\r\nbody",
            );
        }
    });
    for (cache, status) in [("{}", 200), ("{ stale_if_error: 5s }", 502), ("{ stale_if_error: 60s }", 200)] {
        let egret = Config::with_origin(origin.url()).flows(flow(cache)).start();
        assert_eq!(egret.get("/a").text(), "body");
        assert_eq!(egret.get("/a").status, status, "{cache}");
    }
}

#[test]
fn similar_paths_have_separate_entries_and_one_rule() {
    let origin =
        Provider::with_responses(|request| ok_response("Cache-Control: max-age=60", request.target()));
    let paths = ["/a%2Fb", "/a//b", "/a/b"];
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    for expected in ["fwd=uri-miss", "hit"] {
        for path in paths {
            let response = egret.get(path);
            assert!(status(&response).contains(expected), "{path}: {response:?}");
            assert_eq!(response.text(), path);
        }
    }
    assert_eq!(figure(&egret, "entries"), 3);
    assert!(status(&egret.get("/./a/%62")).contains("hit"), "equivalent spellings share an entry");

    let blocked = Config::with_origin(origin.url())
        .flows(
            "flows: [{ name: no, match: { path: /a/b }, remedies: [{ fixed-response: { status: 403 } }] }]\n",
        )
        .start();
    for path in paths {
        assert_eq!(blocked.get(path).status, 403, "{path}");
    }
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn an_unusual_spelling_is_not_stored() {
    let origin =
        Provider::with_responses(|request| ok_response("Cache-Control: max-age=60", request.target()));
    let egret = Config::with_origin(origin.url()).flows(flow("{}")).start();
    for path in ["/%61", "/x/../a", "/./a"] {
        assert!(status(&egret.get(path)).contains("detail=spelling"), "{path}");
    }
    assert_eq!(egret.get("/a").text(), "/a");
    assert_eq!(egret.get("/x/../a").text(), "/a");
}

#[test]
fn entries_are_purged_by_url_prefix_and_tag() {
    let origin = Provider::responding(ok_response("Cache-Control: max-age=60", "x"));
    let egret = Config::with_origin(origin.url()).flows(flow("{ tags: [green] }")).start();
    let ask = |path| status(&egret.get(path)).starts_with("egret; hit");
    let url = |path: &str| format!("http://{}{path}", origin.address());
    for path in ["/a/1", "/a/2", "/a/2?q", "/b"] {
        assert!(!ask(path) && ask(path));
    }
    assert_eq!(purge(&egret, &format!("url={}", url("/a/2"))), json!({ "purged": 1 }));
    assert!(!ask("/a/2") && ask("/a/1") && ask("/b"));
    assert_eq!(purge(&egret, &format!("prefix={}", url("/a/"))), json!({ "purged": 3 }));
    assert!(!ask("/a/1") && ask("/b"));
    assert_eq!(purge(&egret, "tag=blue"), json!({ "purged": 0 }));
    let unknown = purge(&egret, "all=true&flow=other");
    assert_eq!(unknown["status"], 404, "{unknown}");
    assert_eq!(unknown["detail"], "no flow of this name has a cache; those with one are `all`");
    assert_eq!(purge(&egret, "tag=green&flow=all"), json!({ "purged": 2 }));
    assert!(!ask("/b"));
    assert_eq!(purge(&egret, "all=true"), json!({ "purged": 1 }));
    for wrong in ["", "all=false", "url=/a", "url=http://h/&all=true", "other=1"] {
        assert_eq!(purge(&egret, wrong)["status"], 400, "{wrong}");
    }
}

#[test]
fn a_config_that_keeps_the_keys_keeps_what_is_stored() {
    let origin = Provider::responding(ok_response("Cache-Control: max-age=60", "x"));
    let config = Config::with_origin(origin.url());
    let egret = config.clone().flows(flow("{}")).start();
    egret.get("/a");
    let reload = |cache: &str| egret.change_config(config.clone().flows(flow(cache)).yaml());
    reload("{ stale_if_error: 1h }");
    assert!(status(&egret.get("/a")).starts_with("egret; hit"));
    // Responses stored for one credential could now be visible to others.
    reload("{ shared: true }");
    assert!(status(&egret.get("/a")).contains("fwd=uri-miss"));
}

#[test]
fn an_override_stores_a_post_by_body_members() {
    let calls = Arc::new(Watched::<usize>::default());
    let counting = Arc::clone(&calls);
    let origin = Provider::with_responses(move |_| {
        counting.change(|calls| *calls += 1);
        ok(&format!("answer {}", counting.read(|calls| *calls)))
    });
    let cache = "{ methods: [GET, POST], ttl: { 200: 60s }, override: true, \
                 key: { body: [/model, /q], consumer: true }, stale_if_error: 1h }";
    let egret = Config::with_origin(origin.url()).flows(flow(cache)).start();
    let post = |consumer: &str, body: &str| {
        let request = format!(
            "POST /origin/search HTTP/1.1\r\nHost: {}\r\nx-egret-consumer: {consumer}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            egret.address(),
            body.len()
        );
        egret.client().send(request).response().text().to_owned()
    };
    let first = post("one", r#"{"model":"m","q":[1,2],"user":"a"}"#);
    assert_eq!(post("one", r#"{"user":"b","q":[1,2],"model":"m"}"#), first);
    assert_ne!(post("one", r#"{"model":"m","q":[2,1]}"#), first);
    assert_ne!(post("two", r#"{"model":"m","q":[1,2]}"#), first);
    assert_ne!(post("one", "no json"), post("one", "no json"));
    assert_eq!(calls.read(|calls| *calls), 5);
    // The connection can be reused after a hit, because the request's body was read.
    let mut client = egret.client();
    for _ in 0..2 {
        client.send(format!(
            "POST /origin/search HTTP/1.1\r\nHost: {}\r\nx-egret-consumer: one\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{{\"model\":\"m\",\"q\":[1]}}",
            egret.address()
        ));
        client.response().assert_forwarded(200);
    }
    assert_eq!(calls.read(|calls| *calls), 6);
}

#[test]
fn a_remedy_further_out_sees_a_stored_response_as_any_other() {
    let origin = Provider::with_responses(|request| {
        let media_type = if request.target() == "/json" { "application/json" } else { "text/plain" };
        ok_response(&format!("Cache-Control: max-age=60\r\nContent-Type: {media_type}"), r#"{"a":1}"#)
    });
    let flows = "flows:\n  \
        - name: all\n    remedies:\n      \
        - transform: { response: { headers: { set: { x-seen: 'yes' } }, json: { set: { /b: '2' } } } }\n      \
        - cache: {}\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    for path in ["/json", "/text"] {
        let first = egret.get(path);
        let second = egret.get(path);
        assert_eq!(first.body, second.body, "{path}");
        assert_eq!([first.field("x-seen"), second.field("x-seen")], [Some("yes"); 2], "{path}");
        assert!(status(&second).starts_with("egret; hit"), "{second:?}");
    }
    assert_eq!(origin.requests().len(), 2);
}
