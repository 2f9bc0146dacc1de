//! Real clients through Egret to real providers.

use std::process::Command;

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::{Httpbin, Nginx, ab, curl, node, python};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run_checked};
use serde_json::Value;

/// Starts a gateway with go-httpbin as its provider `origin`.
fn before_httpbin() -> (Egret, Httpbin) {
    let httpbin = Httpbin::start();
    (Config::with_origin(httpbin.url()).start(), httpbin)
}

/// Runs curl and returns its output.
fn curled<const N: usize>(arguments: [&str; N]) -> String {
    run_checked(curl().args(arguments))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON: {error}: {text}"))
}

#[test]
fn curl_by_base_url() {
    let (egret, httpbin) = before_httpbin();
    let url = |path: &str| format!("{}/origin{path}", egret.url());
    let got = json(&curled([&url("/get?a=b&c=%20d"), "-H", "X-Mine: 1"]));
    assert_eq!((&got["args"]["a"][0], &got["args"]["c"][0]), (&"b".into(), &" d".into()));
    assert_eq!(got["headers"]["Host"][0], httpbin.address().to_string());
    assert_eq!(got["headers"]["X-Mine"][0], "1");
    let posted = json(&curled([&url("/post"), "-d", "a=b"]));
    assert_eq!(posted["form"]["a"][0], "b");
    for status in ["200", "204", "304", "404", "418", "503"] {
        let code = curled([&url(&format!("/status/{status}")), "-o", "/dev/null", "-w", "%{http_code}"]);
        assert_eq!(code, status);
    }
    let head = curled([&url("/get"), "-I"]);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/json"), "{head}");
    let compressed = json(&curled([&url("/gzip"), "--compressed"]));
    assert_eq!(compressed["gzipped"], true);
    let raw = run_checked(curl().args([&url("/gzip"), "-o", "/dev/null", "-w", "%{header_json}"]));
    assert_eq!(json(&raw)["content-encoding"][0], "gzip");
    let old = curled([&url("/get"), "--http1.0", "-w", "%{http_code}"]);
    assert!(old.ends_with("200"), "{old}");
}

#[test]
fn curl_follows_redirects() {
    let (egret, httpbin) = before_httpbin();
    // Relative redirects stay on the base URL's host; through a proxy absolute ones work as well.
    let final_url = curled([
        "-x",
        &egret.url(),
        "-L",
        &format!("{}/redirect/3", httpbin.url()),
        "-o",
        "/dev/null",
        "-w",
        "%{num_redirects} %{url_effective}",
    ]);
    assert_eq!(final_url, format!("3 {}/get", httpbin.url()));
    let absolute = curled([
        "-x",
        &egret.url(),
        "-L",
        &format!("{}/absolute-redirect/2", httpbin.url()),
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ]);
    assert_eq!(absolute, "200");
}

#[test]
fn curl_uploads_chunked_and_with_expect() {
    let (egret, _httpbin) = before_httpbin();
    let directory = Directory::default();
    let body: String = (0..300_000).map(|at| char::from(b'a' + u8::try_from(at % 26).unwrap())).collect();
    let file = directory.write("body", &body);
    let data = format!("@{}", file.display());
    let url = format!("{}/origin/post", egret.url());
    for fields in ["Transfer-Encoding: chunked", "Expect: 100-continue", "Expect:"] {
        let posted =
            json(&curled([&url, "-H", "Content-Type: text/plain", "-H", fields, "--data-binary", &data]));
        assert!(
            posted["data"] == body,
            "{fields}: {} bytes came",
            posted["data"].as_str().map_or(0, str::len)
        );
    }
    let put = json(&curled([
        &format!("{}/origin/put", egret.url()),
        "-T",
        file.to_str().unwrap(),
        "-H",
        "Content-Type: text/plain",
    ]));
    assert!(put["data"] == body);
}

#[test]
fn curl_receives_streams_trailers_and_slow_responses() {
    let (egret, _httpbin) = before_httpbin();
    let url = |path: &str| format!("{}/origin{path}", egret.url());
    assert_eq!(curled([&url("/stream/7")]).lines().count(), 7);
    assert_eq!(curled([&url("/drip?duration=300ms&delay=0&numbytes=6")]), "******");
    assert_eq!(
        curled([&url("/stream-bytes/100000?seed=1"), "-o", "/dev/null", "-w", "%{size_download}"]),
        "100000"
    );
    let delayed = curled([&url("/delay/150ms"), "-o", "/dev/null", "-w", "%{time_total}"]);
    assert!(delayed.parse::<f64>().unwrap() >= 0.15, "{delayed}");
    let raw = curled([&url("/trailers?X-Sum=abc"), "--raw", "-i"]);
    assert!(raw.ends_with("X-Sum: abc\r\n\r\n"), "{raw:?}");
    let events = curled([&url("/sse?count=3&duration=100ms"), "-N"]);
    assert_eq!(events.matches("event: ping").count(), 3, "{events}");
    let range = curled([&url("/range/1000"), "-r", "10-19", "-w", "%{http_code}"]);
    assert!(range.ends_with("206") && range.len() == 13, "{range}");
}

#[test]
fn curl_through_the_proxy_plain_and_by_connect() {
    let authority = Authority::default();
    let httpbin = Httpbin::start();
    let nginx = Nginx::start(&authority, "location /hello { return 200 'hello over $ssl_protocol'; }");
    let egret = Config::default().start();
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    let got = json(&curled(["-x", &egret.url(), &format!("{}/get", httpbin.url())]));
    assert_eq!(got["headers"]["Host"][0], httpbin.address().to_string());
    assert_eq!(got["headers"].get("Proxy-Connection"), None);
    let tunnelled = format!("{}/hello", nginx.tls_url());
    assert_eq!(
        curled(["-x", &egret.url(), "--cacert", ca.to_str().unwrap(), &tunnelled]),
        "hello over TLSv1.3"
    );
    let through_tunnel = format!("{}/get", httpbin.url());
    assert_eq!(json(&curled(["-x", &egret.url(), "--proxytunnel", &through_tunnel]))["method"], "GET");
    let by_variable =
        run_checked(curl().env("http_proxy", egret.url()).arg(format!("{}/get", httpbin.url())));
    assert!(json(&by_variable)["headers"].get("Via").is_some());
}

#[test]
fn curl_reuses_its_connection() {
    let (egret, _httpbin) = before_httpbin();
    let url = format!("{}/origin/get", egret.url());
    let connects = curled([
        &url,
        &url,
        &url,
        "-o",
        "/dev/null",
        "-o",
        "/dev/null",
        "-o",
        "/dev/null",
        "-w",
        "%{num_connects}",
    ]);
    assert_eq!(connects, "100");
}

/// Runs ab, which must count no failures.
fn abbed(command: &mut Command, requests: &str) -> String {
    let report = run_checked(command);
    assert!(report.contains(&format!("Complete requests:      {requests}\n")), "{report}");
    assert!(report.contains("Failed requests:        0\n"), "{report}");
    assert!(!report.contains("Non-2xx"), "{report}");
    report
}

#[test]
fn ab_with_and_without_keep_alive_and_as_a_proxy() {
    let nginx = Nginx::start(&Authority::default(), "location /small { return 200 'hello'; }");
    let egret = Config::with_origin(nginx.url()).start();
    let (base, direct) = (format!("{}/origin/small", egret.url()), format!("{}/small", nginx.url()));
    let proxy = egret.address().to_string();
    abbed(ab().args(["-q", "-n", "2000", "-c", "20", &base]), "2000");
    let kept = abbed(ab().args(["-q", "-k", "-n", "5000", "-c", "20", &base]), "5000");
    assert!(kept.contains("Keep-Alive requests:    5000\n"), "{kept}");
    abbed(ab().args(["-q", "-n", "2000", "-c", "20", "-X", &proxy, &direct]), "2000");
    let kept = abbed(ab().args(["-q", "-k", "-n", "5000", "-c", "20", "-X", &proxy, &direct]), "5000");
    assert!(kept.contains("Keep-Alive requests:    5000\n"), "{kept}");
    let directory = Directory::default();
    let body = directory.write("body", "a=b".repeat(1000));
    abbed(
        ab().args([
            "-q",
            "-k",
            "-n",
            "2000",
            "-c",
            "20",
            "-T",
            "text/plain",
            "-p",
            body.to_str().unwrap(),
            &base,
        ]),
        "2000",
    );
    assert_eq!(egret.stat("/clients/refused"), 0);
}

#[test]
fn requests_by_base_url_and_behind_the_proxy() {
    let (egret, httpbin) = before_httpbin();
    let script = r#"
import json, requests, sys
gateway, origin = sys.argv[1:]
session = requests.Session()
base = gateway + "/origin"
out = {"get": session.get(base + "/get", params={"a": "b"}).json()["args"]["a"]}
out["post"] = session.post(base + "/post", json={"x": 1}).json()["json"]
out["gzip"] = session.get(base + "/gzip").json()["gzipped"]
out["deflate"] = session.get(base + "/deflate").json()["deflated"]
out["chunked"] = session.post(base + "/post", data=iter([b"one", b"two"]), headers={"Content-Type": "text/plain"}).json()["data"]
out["file"] = session.post(base + "/post", files={"f": ("n.txt", b"content")}).json()["files"]["f"]
out["lines"] = len(list(session.get(base + "/stream/5", stream=True).iter_lines()))
out["auth"] = session.get(base + "/basic-auth/u/p", auth=("u", "p")).status_code
out["cookies"] = session.get(origin + "/cookies/set?k=v", proxies={"http": gateway}).json()
redirected = session.get(origin + "/redirect/2", proxies={"http": gateway})
out["redirects"] = [len(redirected.history), redirected.status_code, "Via" in redirected.headers]
out["big"] = len(session.get(base + "/bytes/1000000").content)
out["empty"] = [session.get(base + "/status/204").status_code, session.head(base + "/get").status_code]
print(json.dumps(out))
"#;
    let out = json(&python(script, &[&egret.url(), &httpbin.url()]));
    assert_eq!(out["get"][0], "b");
    assert_eq!(out["post"]["x"], 1);
    assert_eq!((&out["gzip"], &out["deflate"]), (&true.into(), &true.into()));
    assert_eq!(out["chunked"], "onetwo");
    assert_eq!(out["file"][0], "content");
    assert_eq!((&out["lines"], &out["auth"], &out["big"]), (&5.into(), &200.into(), &1_000_000.into()));
    assert!(out["cookies"].to_string().contains("\"k\":\"v\""), "{out}");
    assert_eq!(out["redirects"].to_string(), "[2,200,true]");
    assert_eq!(out["empty"].to_string(), "[204,200]");
}

#[test]
fn httpx_by_base_url_behind_the_proxy_and_streaming() {
    let (egret, httpbin) = before_httpbin();
    let script = r#"
import asyncio, httpx, json, sys
gateway, origin = sys.argv[1:]
out = {}
with httpx.Client(base_url=gateway + "/origin", timeout=240) as client:
    out["get"] = client.get("/get", params={"a": "b"}).json()["args"]["a"]
    out["post"] = client.post("/post", content=(piece for piece in [b"one", b"two"]), headers={"Content-Type": "text/plain"}).json()["data"]
    with client.stream("GET", "/stream-bytes/100000", params={"seed": 1}) as response:
        out["streamed"] = sum(len(piece) for piece in response.iter_bytes())
    with client.stream("GET", "/drip", params={"duration": "200ms", "delay": 0, "numbytes": 5}) as response:
        out["drip"] = "".join(response.iter_text())
with httpx.Client(proxy=gateway, follow_redirects=True, timeout=240) as client:
    out["proxied"] = client.get(origin + "/redirect/2").json()["method"]
async def many():
    async with httpx.AsyncClient(base_url=gateway + "/origin", timeout=240) as client:
        responses = await asyncio.gather(*(client.get(f"/get?n={n}") for n in range(50)))
        return [int(r.json()["args"]["n"][0]) for r in responses]
out["many"] = asyncio.run(many()) == list(range(50))
print(json.dumps(out))
"#;
    let out = json(&python(script, &[&egret.url(), &httpbin.url()]));
    assert_eq!((&out["get"][0], &out["post"]), (&"b".into(), &"onetwo".into()));
    assert_eq!((&out["streamed"], &out["drip"]), (&100_000.into(), &"*****".into()));
    assert_eq!((&out["proxied"], &out["many"]), (&"GET".into(), &true.into()));
}

#[test]
fn node_fetch_behind_http_proxy() {
    let httpbin = Httpbin::start();
    let egret = Config::default().start();
    let urls = ["/get?a=b", "/post", "/gzip", "/redirect/2", "/stream/3"]
        .map(|path| format!("{}{path}", httpbin.url()));
    let arguments: Vec<&str> = urls.iter().map(String::as_str).collect();
    let results = json(&node("fetch.mjs", &egret.url(), &arguments));
    for result in results.as_array().unwrap() {
        assert_eq!(result["status"], 200, "{result}");
    }
    let text = |index: usize| results[index]["text"].as_str().unwrap_or_default();
    assert_eq!(json(text(0))["args"]["a"][0], "b");
    assert_eq!(json(text(1))["data"], "from node");
    assert_eq!(json(text(2))["gzipped"], true);
    assert_eq!(results[3]["url"], format!("{}/get", httpbin.url()));
    assert_eq!(text(4).lines().count(), 3);
    // It uses tunnels even for plain providers, so its requests appear as tunnels.
    assert!(egret.provider_stat("-", "tunnels") >= 1);
}
