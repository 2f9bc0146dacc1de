//! Clients that prove who they are by a token: in every way of routing, over a reload, and without a trace of
//! the token anywhere.

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::exec::{Place, refused};
use egret_tests::http::Client;
use egret_tests::peers::curl;
use egret_tests::process::{Directory, run, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{content, every_file, until_recorded};
use egret_tests::wait;

const CHECKOUT: &str = "checkout-token-3f9a1c7e5b2d8064";
const REPORTS: &str = "reports-token-77c0d1e2f3a4b5c6";

/// Starts a provider that responds with the consumer that a flow has written into a field.
fn telling() -> Provider {
    Provider::with_responses(|request| ok(&request.values("x-seen").concat()))
}

/// The flow that shows the provider who calls.
const SEEN: &str = "flows:\n\
    \x20 - name: seen\n\
    \x20   remedies: [{ transform: { request: { headers: { set: { x-seen: '${request.consumer}' } } } } }]\n";

/// A listener whose clients have tokens in files.
fn listener(directory: &Directory) -> String {
    let checkout = directory.write_secret("checkout", CHECKOUT);
    let reports = directory.write_secret("reports", REPORTS);
    format!(
        "{{ address: '127.0.0.1:0', clients: {{ tokens: {{ checkout: '${{file:{}}}', reports: '${{file:{}}}' }} }} }}",
        checkout.display(),
        reports.display()
    )
}

fn start(directory: &Directory, origin: &Provider, rest: &str) -> Egret {
    Config::with_origin(origin.url()).listen([&listener(directory)]).flows(rest).start()
}

fn proxy(egret: &Egret, userinfo: &str) -> String {
    format!("http://{userinfo}@{}", egret.address())
}

fn own(token: &str) -> String {
    format!("x-egret-token: {token}\r\n")
}

#[test]
fn curl_proves_who_it_is_by_the_user_of_its_proxy() {
    let (directory, origin) = (Directory::default(), telling());
    let egret = start(&directory, &origin, SEEN);
    let target = format!("{}/a", origin.url());
    let call = |userinfo: &str, more: &[&str]| {
        let arguments = ["--proxy", &proxy(&egret, userinfo), "-w", " %{http_code} %{http_connect}"];
        let output = run(curl().args(arguments).args(more).arg(&target));
        String::from_utf8(output.stdout).unwrap().lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(call(&format!("checkout:{CHECKOUT}"), &[]), "checkout 200 000");
    assert_eq!(call(&format!("reports:{REPORTS}"), &["--proxy-anyauth"]), "reports 200 000");
    // Inside of a tunnel that is not intercepted, the provider sees what the client sends.
    assert_eq!(call(&format!("checkout:{CHECKOUT}"), &["--proxytunnel"]), " 200 200");
    assert_eq!(call(&format!("reports:{CHECKOUT}"), &["--proxytunnel"]), " 000 407");
    assert!(call(&format!("reports:{CHECKOUT}"), &["-o", "/dev/null"]).ends_with(" 407 000"));
}

#[test]
fn a_client_without_a_token_gets_407() {
    let (directory, origin) = (Directory::default(), telling());
    let egret = start(&directory, &origin, SEEN);
    let own_host = egret.address();
    let mut client = egret.client();
    for target in ["/origin/a".to_owned(), format!("{}/a", origin.url())] {
        let response = client.get(own_host, &target).response();
        response.assert_generated(407, "client-unproven");
        let challenges = response.values("proxy-authenticate");
        assert_eq!(challenges, ["Basic realm=\"egret\", charset=\"UTF-8\"", "Bearer realm=\"egret\""]);
    }
    // The same connection goes on, as clients expect that first ask for the challenge.
    let request = format!("GET /origin/a HTTP/1.1\r\nHost: {own_host}\r\n{}\r\n", own(CHECKOUT));
    assert_eq!(client.send(request).response().text(), "checkout");
    let connect =
        client.send(format!("CONNECT {} HTTP/1.1\r\nHost: h:1\r\n\r\n", origin.address())).response();
    connect.assert_generated(407, "client-unproven");
    assert_eq!(connect.field("connection"), Some("close"), "bytes of a tunnel may follow");
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(egret.generated("client-unproven"), 3);
    let metrics = egret.control_get("/metrics");
    assert!(
        metrics.text().contains("egret_client_unproven_total{reason=\"missing\"} 3\n"),
        "{}",
        metrics.text()
    );
}

#[test]
fn each_request_of_a_connection_is_judged_by_its_own_token() {
    let (directory, origin) = (Directory::default(), telling());
    let egret = start(&directory, &origin, SEEN);
    let mut client = egret.client();
    let mut call = |fields: &str| {
        let request = format!("GET /origin/a HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", egret.address());
        let response = client.send(request).response();
        (response.status, response.text().to_owned())
    };
    assert_eq!(call(&own(CHECKOUT)), (200, "checkout".to_owned()));
    assert_eq!(call(&own(REPORTS)), (200, "reports".to_owned()));
    assert_eq!(call("x-egret-consumer: checkout\r\n").0, 407, "an earlier token is not remembered");
    assert_eq!(call(&(own(CHECKOUT) + "x-egret-consumer: reports\r\n")), (200, "checkout".to_owned()));
}

#[test]
fn tunnelled_requests_inherit_the_proof_until_revocation() {
    let (directory, origin) = (Directory::default(), telling());
    let config = Config::with_origin(origin.url())
        .listen([&listener(&directory)])
        .flows(format!("interception: {{}}\n{SEEN}"));
    let egret = Egret::start_with(&config, |command| {
        let mut init = egret(["ca", "init"]);
        run_checked(init.current_dir(command.get_current_dir().expect("a directory")));
    });
    let mut client = egret.client();
    let authority = origin.address();
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", own(CHECKOUT)));
    assert_eq!(client.response_to("HEAD").status, 200);
    let mut call = |fields: &str| {
        let response =
            client.send(format!("GET /a HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n")).response();
        (response.status, response.text().to_owned(), response.field("connection").map(str::to_owned))
    };
    for fields in [String::new(), own(REPORTS), "x-egret-consumer: reports\r\n".to_owned()] {
        assert_eq!(call(&fields).1, "checkout", "{fields}");
    }
    directory.write_secret("checkout", "another-token-3f9a1c7e5b2d8064");
    egret.hang_up();
    wait::until_true("the reload is done", || egret.stat("/reloads") >= 1);
    let (status, _, connection) = call(&own(CHECKOUT));
    assert_eq!((status, connection.as_deref()), (407, Some("close")));
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn a_token_is_changed_without_an_interruption() {
    let (directory, origin) = (Directory::default(), telling());
    let old = directory.write_secret("old", CHECKOUT);
    let new = directory.write_secret("new", "checkout-token-after-0123456789");
    let config = |clients: &str| {
        let listen = format!("{{ address: '127.0.0.1:0', clients: {{ {clients} }} }}");
        // One worker, so each call finds the connection that the previous one left in the pool.
        Config::with_origin(origin.url()).gateway("workers: 1").listen([&listen]).flows(SEEN)
    };
    let (old, new) = (format!("${{file:{}}}", old.display()), format!("${{file:{}}}", new.display()));
    let egret = config(&format!("tokens: {{ checkout: '{old}' }}")).start();
    let call = |token: &str| {
        let request = format!("GET /origin/a HTTP/1.1\r\nHost: {}\r\n{}\r\n", egret.address(), own(token));
        egret.client().send(request).response().status
    };
    let statuses = || [CHECKOUT, "checkout-token-after-0123456789"].map(call);
    assert_eq!(statuses(), [200, 407]);
    let both = format!("tokens: {{ checkout: '{new}' }}, old_tokens: {{ checkout: '{old}' }}");
    egret.rewrite(config(&both).yaml());
    wait::until_true("both tokens are accepted", || statuses() == [200, 200]);
    egret.rewrite(config(&format!("tokens: {{ checkout: '{new}' }}")).yaml());
    wait::until_true("the old token is not accepted any more", || statuses() == [407, 200]);
    assert_eq!(origin.connections(), 1, "a changed token costs no connection to a provider");
}

#[test]
fn a_token_shows_nowhere_and_the_name_that_it_proves_everywhere() {
    let (directory, origin) = (Directory::default(), telling());
    let wrong = "wrong-token-9d8e7f6a5b4c3d2e";
    let rest = "exporters: { archive: { type: har, directory: har } }\n\
         flows:\n\
         \x20 - name: all\n\
         \x20   diagnoses: [{ har: { export: archive, obfuscate: false } }, { metrics: { labels: [consumer] } }]\n";
    let config = Config::with_origin(origin.url())
        .listen([&listener(&directory)])
        .gateway("access_log: { output: access.log }")
        .control("traffic: { entries: 10, redact: off }")
        .flows(rest);
    let mut egret = config.start();
    let live = egret.control_get("/api/v1/traffic");
    let basic = "Proxy-Authorization: Basic Y2hlY2tvdXQ6Y2hlY2tvdXQtdG9rZW4tM2Y5YTFjN2U1YjJkODA2NA==\r\n";
    let own_host = egret.address();
    for fields in
        [own(CHECKOUT), basic.to_owned(), own(wrong), format!("Proxy-Authorization: Bearer {wrong}\r\n")]
    {
        let request = format!("GET /origin/a HTTP/1.1\r\nHost: {own_host}\r\n{fields}\r\n");
        egret.client().send(request).response();
    }
    let connect = format!("CONNECT {} HTTP/1.1\r\nHost: h:1\r\n{basic}\r\n", origin.address());
    let mut tunnel = egret.client();
    assert_eq!(tunnel.send(connect).response_to("HEAD").status, 200);
    tunnel.get(origin.address(), "/b").response();
    drop(tunnel);
    until_recorded(&egret, 5);
    let mut shown = vec![live.text().to_owned(), egret.log()];
    for path in
        ["/metrics", "/api/v1/traffic", "/api/v1/flows", "/api/v1/config", "/api/v1/gateway", "/api/v1/stats"]
    {
        shown.push(egret.control_get(path).text().to_owned());
    }
    wait::until_true("the access log is written", || {
        std::fs::read_to_string(egret.directory().join("access.log")).unwrap_or_default().lines().count() == 5
    });
    let access_log = std::fs::read_to_string(egret.directory().join("access.log")).unwrap();
    assert_eq!(access_log.matches("consumer=\"checkout\"").count(), 3, "{access_log}");
    assert_eq!(access_log.matches("error=client-unproven").count(), 2, "{access_log}");
    egret.terminate();
    egret.until_ended();
    let files = every_file(&egret.directory().join("har"));
    assert!(!files.is_empty());
    shown.extend(files.iter().map(|file| String::from_utf8_lossy(&content(file)).into_owned()));
    assert!(shown.iter().any(|text| text.contains("\"_consumer\"") && text.contains("checkout")));
    shown.extend([access_log, String::from_utf8_lossy(&origin.received()).into_owned()]);
    for secret in [CHECKOUT, wrong, "Y2hlY2tvdXQ6"] {
        for text in &shown {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn a_config_that_proves_nothing_is_refused_with_its_place() {
    let directory = Directory::default();
    let token = format!("'${{file:{}}}'", directory.write_secret("token", CHECKOUT).display());
    let short = format!("'${{file:{}}}'", directory.write_secret("short", "short").display());
    for (listen, expected) in [
        ("clients: {}".to_owned(), "expected `tokens`, `jwt`, `ca` or `users`"),
        (format!("clients: {{ tokens: {{ a: {CHECKOUT} }} }}"), "must not be written in the config"),
        (format!("clients: {{ tokens: {{ a: {short} }} }}"), "16 to 512"),
        (format!("clients: {{ tokens: {{ a: {token}, b: {token} }} }}"), "has the same token"),
        (format!("clients: {{ tokens: {{ 'a b': {token} }} }}"), "a client's name"),
        (format!("clients: {{ tokens: {{ a: {token} }} }}, redirect: true"), "not allowed with `redirect`"),
        ("clients: { ca: ca.pem }".to_owned(), "requires `tls`"),
    ] {
        let yaml = format!("gateway: {{ listen: [{{ address: '127.0.0.1:0', {listen} }}] }}\n");
        let file = directory.write("egret.yaml", yaml);
        let output = run(egret(["check", &file.display().to_string()]).env("NO_COLOR", "1"));
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{listen}: {said}");
        assert!(!said.contains(CHECKOUT) || listen.contains(CHECKOUT), "{said}");
    }
    let beside = format!(
        "gateway: {{ listen: ['127.0.0.1:0', {{ address: '127.0.0.1:0', clients: {{ tokens: {{ a: {token} }} }} }}] }}\n"
    );
    let file = directory.write("egret.yaml", beside);
    let output = run(egret(["check", &file.display().to_string()]).env("NO_COLOR", "1"));
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && said.contains("can name any consumer"), "{said}");
}

#[test]
fn a_command_proves_who_it_is_by_the_url_of_its_proxy() {
    let (directory, origin) = (Directory::default(), telling());
    let egret = start(&directory, &origin, SEEN);
    let place = place(&egret, &directory);
    let script = format!("curl --silent --fail {}/a", origin.url());
    assert_eq!(place.sh(["--client", "checkout"], &script), "checkout");
    let mut with_variable = place.exec(["--client", "reports"], ["sh", "-c", &script]);
    assert_eq!(run_checked(with_variable.env("EGRET_CLIENT_TOKEN", REPORTS)), "reports");
    let mut wrong = place.exec(["--client", "reports"], ["sh", "-c", &script]);
    assert!(!run(wrong.env("EGRET_CLIENT_TOKEN", CHECKOUT)).status.success());
    assert!(refused(&mut place.exec([], ["true"]), 125).contains("--client"));
    assert!(refused(&mut place.exec(["--client", "other"], ["true"]), 125).contains("EGRET_CLIENT_TOKEN"));
    let said = run(&mut place.exec(["-v", "--client", "checkout"], ["true"])).stderr;
    assert!(!String::from_utf8(said).unwrap().contains(CHECKOUT));
}

/// A place whose config has the control port of a gateway, and the tokens of its clients.
fn place(gateway: &Egret, directory: &Directory) -> Place {
    let (listener, control) = (listener(directory), gateway.control());
    let place = Place::of(gateway);
    let data_dir = gateway.directory().join("egret-data");
    let config = format!(
        "gateway: {{ listen: [{listener}] }}\ncontrol: {{ listen: '{control}' }}\ndata_dir: {}\n",
        data_dir.display()
    );
    place.directory.write("egret.yaml", config);
    place
}

#[test]
fn an_unrequested_token_does_not_reach_a_provider() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let mut client = Client::connect(egret.address());
    client.send(format!("GET /origin/a HTTP/1.1\r\nHost: {}\r\n{}\r\n", egret.address(), own(CHECKOUT)));
    client.response().assert_forwarded(200);
    assert!(origin.only_request().values("x-egret-token").is_empty());
}
