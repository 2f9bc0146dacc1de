//! Redirects and cookies lead a client that uses a base URL back through the gateway; stored and recorded
//! responses stay unchanged.

use egret_tests::cached::{ok_response, status};
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::peers::curl;
use egret_tests::process::run_checked;
use egret_tests::provider::Provider;
use egret_tests::recorded::{entries, files, until_recorded};

/// Starts a provider whose storable responses redirect and set cookies.
fn leading() -> Provider {
    Provider::with_responses(|request| {
        let host = request.values("host")[0].to_owned();
        let fields = format!(
            "Location: http://{host}/v2/next?of={}#there\r\nContent-Location: /v2/here\r\nCache-Control: max-age=60",
            request.target().len()
        );
        ok_response(&fields, "body")
    })
}

fn by_name(egret: &Egret, target: &str) -> Response {
    egret.client().get(egret.address(), target).response()
}

fn by_proxy(egret: &Egret, origin: &Provider, path: &str) -> Response {
    let request = format!("GET {}{path} HTTP/1.1\r\nHost: h\r\n\r\n", origin.url());
    egret.client().send(request).response()
}

fn leads_to(response: &Response) -> [Option<&str>; 2] {
    [response.field("location"), response.field("content-location")]
}

#[test]
fn links_are_rewritten_only_for_named_providers() {
    let origin = leading();
    let egret = Config::with_origin(format!("{}/v2", origin.url())).start();
    let named = by_name(&egret, "/origin/a");
    assert_eq!(leads_to(&named), [Some("/origin/next?of=5#there"), Some("/origin/here")]);
    let proxied = by_proxy(&egret, &origin, "/v2/a");
    let there = format!("{}/v2/next?of=5#there", origin.url());
    assert_eq!(leads_to(&proxied), [Some(there.as_str()), Some("/v2/here")]);
}

#[test]
fn a_redirect_to_another_provider_is_rewritten() {
    let other = Provider::plain();
    let url = other.url();
    let origin = Provider::with_responses(move |request| {
        let to = if request.target() == "/out" { "https://elsewhere.example/x" } else { &url };
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let egret = Config::with_origin(origin.url()).provider("other", other.url()).start();
    assert_eq!(by_name(&egret, "/origin/a").field("location"), Some("/other"));
    assert_eq!(by_name(&egret, "/origin/out").field("location"), Some("https://elsewhere.example/x"));
}

#[test]
fn cookies_come_back_to_their_provider_alone() {
    let origin = Provider::responding(
        "HTTP/1.1 200 OK\r\nSet-Cookie: s=1; Path=/; Domain=api.example; HttpOnly\r\nSet-Cookie: t=2; Path=/v2/x\r\n\
         Set-Cookie: u=3\r\nContent-Length: 0\r\n\r\n",
    );
    let egret = Config::with_origin(format!("{}/v2", origin.url())).start();
    assert_eq!(
        by_name(&egret, "/origin/a").values("set-cookie"),
        ["s=1; HttpOnly; Path=/origin", "t=2; Path=/origin/x", "u=3"]
    );
    assert_eq!(by_name(&egret, "/origin").values("set-cookie")[2], "u=3; Path=/origin");
    let proxied = by_proxy(&egret, &origin, "/v2/a");
    assert_eq!(proxied.values("set-cookie")[0], "s=1; Path=/; Domain=api.example; HttpOnly");
}

#[test]
fn a_stored_response_is_rewritten_for_each_route() {
    for fills_by_name in [true, false] {
        let origin = leading();
        let egret = Config::with_origin(format!("{}/v2", origin.url()))
            .flows("flows: [ { name: all, remedies: [ { cache: {} } ] } ]\n")
            .start();
        let ask = |is_named: bool| {
            if is_named { by_name(&egret, "/origin/a") } else { by_proxy(&egret, &origin, "/v2/a") }
        };
        let there = format!("{}/v2/next?of=5#there", origin.url());
        let expected = |is_named: bool| {
            if is_named {
                ["/origin/next?of=5#there".to_owned(), "/origin/here".to_owned()]
            } else {
                [there.clone(), "/v2/here".to_owned()]
            }
        };
        for is_named in [fills_by_name, !fills_by_name, fills_by_name] {
            let response = ask(is_named);
            let found = leads_to(&response).map(|value| value.unwrap().to_owned());
            assert_eq!(found, expected(is_named), "{response:?}");
            assert_eq!(response.text(), "body");
        }
        assert!(status(&ask(true)).starts_with("egret; hit"));
        assert_eq!(origin.requests().len(), 1);
    }
}

#[test]
fn records_keep_what_the_provider_has_sent() {
    let origin = leading();
    let mut egret = Config::with_origin(format!("{}/v2", origin.url()))
        .flows(
            "exporters: { archive: { type: har, directory: har } }\n\
             flows: [ { name: all, remedies: [ { cache: {} } ], diagnoses: [ { har: { export: archive, obfuscate: false } } ] } ]\n",
        )
        .start();
    for _ in 0..2 {
        assert_eq!(by_name(&egret, "/origin/a").field("content-location"), Some("/origin/here"));
    }
    until_recorded(&egret, 2);
    egret.terminate();
    egret.until_ended();
    let recorded = entries(&files(&egret.directory().join("har")));
    assert_eq!(recorded.len(), 2);
    for entry in recorded {
        let fields = entry["response"]["headers"].as_array().unwrap();
        let field = fields
            .iter()
            .find(|field| field["name"].as_str().unwrap().eq_ignore_ascii_case("content-location"));
        assert_eq!(field.unwrap()["value"], "/v2/here", "{entry}");
    }
}

#[test]
fn it_can_be_turned_off() {
    let origin = leading();
    let egret = Config::with_origin(format!("{}/v2", origin.url())).gateway("rewrite: off").start();
    assert_eq!(by_name(&egret, "/origin/a").field("content-location"), Some("/v2/here"));
}

#[test]
fn curl_follows_a_redirect_and_sends_the_cookie_back() {
    let origin = Provider::with_responses(|request| {
        match request.target() {
        "/v2/in" => b"HTTP/1.1 302 Found\r\nLocation: /v2/home\r\nSet-Cookie: s=1; Path=/v2; Domain=127.0.0.1\r\nContent-Length: 0\r\n\r\n".to_vec(),
        target => {
            let cookie = request.values("cookie").join(",");
            ok_response("Content-Type: text/plain", &format!("{target} {cookie}"))
        }
    }
    });
    let egret = Config::with_origin(format!("{}/v2", origin.url())).start();
    let text = run_checked(curl().args(["-L", "-b", "", &format!("{}/origin/in", egret.url())]));
    assert_eq!(text, "/v2/home s=1");
}
