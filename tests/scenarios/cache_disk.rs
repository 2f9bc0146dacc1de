//! A cache with a disk: stored responses survive restarts, kills and a small memory, and deletion is durable.

use egret_tests::cached::{figure, flow, ok_response, purge, status, until_open, until_written};
use egret_tests::clock::stop_clock;
use egret_tests::egret::{Config, Egret};
use egret_tests::process::{Directory, raise_open_files};
use egret_tests::provider::{Provider, Request};
use egret_tests::wait::until_true;
use serde_json::json;

const DISK: &str = "{ disk: { size: 64MiB } }";

/// Starts an origin whose responses contain the request target; it responds with 204 to unsafe methods.
fn telling(fields: &'static str) -> Provider {
    Provider::with_responses(move |request| {
        if request.line.starts_with("POST") {
            return b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
        }
        ok_response(fields, &received(request))
    })
}

fn received(request: &Request) -> String {
    format!("{} {}", request.target(), request.values("authorization").join(","))
}

/// Returns `true` if the response comes from the cache; it must then equal the provider's earlier response.
fn is_hit(egret: &Egret, path: &str) -> bool {
    let response = egret.get(path);
    assert_eq!(response.text(), format!("{path} "));
    status(&response).starts_with("egret; hit")
}

fn restart(egret: Egret, config: &Config) -> Egret {
    let egret = egret.restart_with("TERM", config, stop_clock);
    until_open(&egret);
    egret
}

#[test]
fn a_restart_responds_from_the_disk_without_the_provider() {
    let origin = telling("Cache-Control: max-age=600");
    let config = Config::with_origin(origin.url()).flows(flow(DISK));
    let egret = config.start();
    let paths: Vec<String> = (0..50).map(|number| format!("/{number}")).collect();
    assert!(paths.iter().all(|path| !is_hit(&egret, path)));
    // Pending writes are completed at shutdown.
    let egret = restart(egret, &config);
    assert_eq!(figure(&egret, "disk/entries"), 50);
    for path in &paths {
        let first = egret.get(path);
        assert!(status(&first).starts_with("egret; hit") && status(&first).ends_with("; detail=disk"));
        assert!(first.field("age").is_some());
        assert!(!status(&egret.get(path)).contains("detail"), "it is in memory again");
    }
    assert_eq!((origin.requests().len(), figure(&egret, "disk/loads")), (50, 50));
}

#[test]
fn an_entry_evicted_from_memory_is_still_served() {
    let body = "x".repeat(60_000);
    let origin = Provider::with_responses(move |request| {
        ok_response("Cache-Control: max-age=600", &format!("{}{body}", request.target()))
    });
    let cache = "{ max_entry: 64KiB, memory: 1MiB, disk: { size: 16MiB } }";
    let egret = Egret::start_with(&Config::with_origin(origin.url()).flows(flow(cache)), stop_clock);
    until_open(&egret);
    for _ in 0..3 {
        for number in 0..60 {
            let path = format!("/{number}");
            assert!(egret.get(&path).text().starts_with(&format!("{path}x")));
        }
        until_written(&egret, 60);
    }
    assert_eq!(origin.requests().len(), 60);
    assert!(figure(&egret, "evicted") > 100 && figure(&egret, "disk/loads") > 100);
    assert_eq!((figure(&egret, "disk/skipped"), figure(&egret, "disk/dropped")), (0, 0));
}

#[test]
fn removed_entries_stay_removed_after_a_restart() {
    let origin = telling("Cache-Control: max-age=600");
    let config = Config::with_origin(origin.url()).flows(flow("{ tags: [green], disk: {} }"));
    let egret = config.start();
    for path in ["/a", "/a?q", "/b", "/c/1", "/c/2", "/d"] {
        assert!(!is_hit(&egret, path));
    }
    // From here on they are only on the disk.
    let egret = restart(egret, &config);
    let post = format!("POST /origin/a HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", egret.address());
    assert_eq!(egret.client().send(post).response().status, 204);
    assert_eq!(figure(&egret, "counts/invalidated"), 2);
    let url = |path: &str| format!("http://{}{path}", origin.address());
    assert_eq!(purge(&egret, &format!("url={}", url("/b"))), json!({ "purged": 1 }));
    assert_eq!(purge(&egret, &format!("prefix={}", url("/c/"))), json!({ "purged": 2 }));
    assert!(is_hit(&egret, "/d"));
    let egret = restart(egret, &config);
    assert_eq!(figure(&egret, "disk/entries"), 1);
    for path in ["/a", "/a?q", "/b", "/c/1", "/c/2"] {
        assert!(!is_hit(&egret, path), "{path}");
    }
    assert!(is_hit(&egret, "/d"));
    // A response in memory and on the disk counts once.
    assert_eq!(purge(&egret, "tag=green"), json!({ "purged": 6 }));
    let egret = restart(egret, &config);
    assert_eq!(figure(&egret, "disk/entries"), 0);
}

#[test]
fn a_kill_loses_nothing_that_was_written_and_damages_nothing() {
    let origin = telling("Cache-Control: max-age=600");
    let config = Config::with_origin(origin.url()).flows(flow(DISK));
    let mut egret = config.start();
    let mut late = 0;
    for round in 0..4 {
        until_open(&egret);
        for number in 0..40 {
            let path = format!("/{round}/{number}");
            assert!(!is_hit(&egret, &path));
        }
        // Late responses that this process has stored already are written first.
        until_written(&egret, late + 40);
        // Some of these are being written when the process is killed.
        for number in 0..20 {
            egret.get(&format!("/{round}/late/{number}"));
        }
        egret = egret.restart_with("KILL", &config, stop_clock);
        until_open(&egret);
        for number in 0..40 {
            let path = format!("/{round}/{number}");
            assert!(is_hit(&egret, &path), "{path}");
        }
        // Each one is either stored or not; every response is correct.
        let misses = (0..20).filter(|number| !is_hit(&egret, &format!("/{round}/late/{number}")));
        late = misses.count() as u64;
    }
    assert!(is_hit(&egret, "/0/0"));
}

#[test]
fn credentials_separate_responses_after_a_restart() {
    let origin = telling("Cache-Control: public, max-age=600\r\nVary: X-Shade");
    let config = Config::with_origin(origin.url()).flows(flow(DISK));
    let ask = |egret: &Egret, credential: &str| {
        let field =
            if credential.is_empty() { String::new() } else { format!("Authorization: {credential}\r\n") };
        let request =
            format!("GET /origin/a HTTP/1.1\r\nHost: {}\r\nX-Shade: 1\r\n{field}\r\n", egret.address());
        let response = egret.client().send(request).response();
        assert_eq!(response.text(), format!("/a {credential}"));
        status(&response).starts_with("egret; hit")
    };
    let credentials = ["", "Bearer swordfish", "Bearer seabass"];
    let egret = config.start();
    assert!(credentials.iter().all(|credential| !ask(&egret, credential)));
    let egret = restart(egret, &config);
    assert!(credentials.iter().all(|credential| ask(&egret, credential)));
    assert!(!ask(&egret, "Bearer salmon"));
    assert_eq!(origin.requests().len(), 4);
    until_written(&egret, 1);
    // Bodies are stored as received. Credentials are not.
    let files = files(&egret);
    assert!(files.len() >= 6, "{} files", files.len());
    for file in files {
        let content = std::fs::read(&file).unwrap();
        let heads = String::from_utf8_lossy(&content).replace("/a Bearer", "");
        assert!(!heads.contains("Bearer") && !heads.contains("authorization"), "{}", file.display());
    }
    let log = egret.log();
    assert!(!log.contains("swordfish") && !log.contains("secret"), "{log}");
}

#[test]
fn an_account_finds_its_entries_after_a_restart() {
    let origin = telling("Cache-Control: public, max-age=600");
    let directory = Directory::default();
    let file = directory.write_secret("token", "first");
    let flows = format!(
        "accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{}}}\" }} }}\n\
         flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}, {{ cache: {DISK} }}] }}]\n",
        file.display()
    );
    let config = Config::with_origin(origin.url()).flows(flows);
    let started = |egret: Egret| {
        let egret = egret.restart_with("TERM", &config, stop_clock);
        until_true("the disk is open", || {
            let flows = egret.control_get("/api/v1/flows").json();
            flows.pointer("/flows/0/remedies/1/cache/disk/is_open") == Some(&true.into())
        });
        egret
    };
    let egret = config.start();
    assert_eq!(egret.get("/a").text(), "/a Bearer first");
    let egret = started(egret);
    assert!(status(&egret.get("/a")).starts_with("egret; hit"));
    directory.write_secret("token", "second");
    let egret = started(egret);
    assert_eq!(egret.get("/a").text(), "/a Bearer second");
    directory.write_secret("token", "first");
    let egret = started(egret);
    let found = egret.get("/a");
    assert!(status(&found).starts_with("egret; hit"), "{found:?}");
    assert_eq!((found.text(), origin.requests().len()), ("/a Bearer first", 2));
}

/// Returns the files on its disk.
fn files(egret: &Egret) -> Vec<std::path::PathBuf> {
    let caches = std::fs::read_dir(egret.directory().join("egret-data/cache")).unwrap();
    let files = caches.flat_map(|cache| std::fs::read_dir(cache.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn a_validated_response_is_fresh_after_a_restart() {
    let origin = Provider::with_responses(|request| {
        if request.values("if-none-match").is_empty() {
            ok_response("Cache-Control: max-age=0\r\nETag: \"1\"\r\nX-Version: 1", "body")
        } else {
            b"HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\nETag: \"1\"\r\nX-Version: 2\r\n\r\n"
                .to_vec()
        }
    });
    let config = Config::with_origin(origin.url()).flows(flow(DISK));
    let egret = config.start();
    assert_eq!(egret.get("/a").field("x-version"), Some("1"));
    let egret = restart(egret, &config);
    // Stored responses that need validation also come from the disk.
    let validated = egret.get("/a");
    assert_eq!((validated.field("x-version"), validated.text()), (Some("2"), "body"));
    let egret = restart(egret, &config);
    let hit = egret.get("/a");
    assert_eq!((hit.field("x-version"), hit.text()), (Some("2"), "body"));
    assert!(status(&hit).starts_with("egret; hit"));
    assert_eq!((origin.requests().len(), figure(&egret, "disk/entries")), (2, 1));
}

#[test]
fn a_thousand_requests_make_one_load_from_disk() {
    let origin = telling("Cache-Control: max-age=600");
    for collapse in ["{}", "null"] {
        let cache = format!("{{ collapse: {collapse}, disk: {{}} }}");
        let config = Config::with_origin(origin.url()).gateway("workers: 2").flows(flow(&cache));
        let path = format!("/{}", collapse.len());
        let egret = config.start();
        assert!(!is_hit(&egret, &path));
        let egret = restart(egret, &config);
        raise_open_files();
        let mut clients: Vec<_> = (0..1_000).map(|_| egret.client()).collect();
        let calls = origin.requests().len();
        for client in &mut clients {
            client.get(egret.address(), &format!("/origin{path}"));
        }
        for client in &mut clients {
            let response = client.response();
            assert_eq!(response.assert_forwarded(200).text(), format!("{path} "));
            assert!(status(&response).starts_with("egret; hit"), "{response:?}");
        }
        assert_eq!((origin.requests().len(), figure(&egret, "disk/loads")), (calls, 1));
    }
}

#[test]
fn a_large_response_comes_unchanged_from_the_disk() {
    let body: String =
        (0..900_000_u32).map(|number| char::from(b'a' + u8::try_from(number % 23).unwrap())).collect();
    let response = ok_response("Cache-Control: max-age=600\r\nETag: \"1\"", &body);
    let origin = Provider::responding(response);
    let config = Config::with_origin(origin.url()).flows(flow(DISK));
    let egret = config.start();
    assert_eq!(egret.get("/a").text(), body);
    let egret = restart(egret, &config);
    let part =
        format!("GET /origin/a HTTP/1.1\r\nHost: {}\r\nRange: bytes=70000-200000\r\n\r\n", egret.address());
    let part = egret.client().send(part).response();
    assert_eq!((part.status, part.text() == &body[70_000..=200_000]), (206, true));
    let whole = egret.get("/a");
    assert_eq!((whole.text() == body, whole.field("content-length")), (true, Some("900000")));
    assert_eq!(origin.requests().len(), 1);
}
