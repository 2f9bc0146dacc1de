//! Listeners on Unix sockets: every way of routing works on them, and the user who connects is the consumer.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::http::Client;
use egret_tests::peers::{curl, python};
use egret_tests::process::{Directory, Process, run, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::supervised::pass;
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;

/// The flow that shows the provider who calls.
const SEEN: &str = "flows:\n\
    \x20 - name: seen\n\
    \x20   remedies: [{ transform: { request: { headers: { set: { x-seen: '${request.consumer}' } } } } }]\n";

/// A directory with the path of a socket, which everybody can reach.
struct Place {
    directory: Directory,
}

impl Default for Place {
    fn default() -> Self {
        let directory = Directory::default();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory }
    }
}

impl Place {
    fn path(&self) -> PathBuf {
        self.directory.join("egret.sock")
    }

    /// A listener on the socket, with more keys.
    fn listener(&self, keys: &str) -> String {
        format!("{{ address: 'unix:{}'{keys} }}", self.path().display())
    }

    fn config(&self, origin: &Provider, keys: &str) -> Config {
        Config::with_origin(origin.url()).listen([&self.listener(keys)])
    }

    fn client(&self) -> Client {
        Client::connect_unix(&self.path())
    }

    /// Sends a GET by base URL on a new connection, and returns the status and the text.
    fn get(&self) -> (u16, String) {
        let response = self.client().get("localhost", "/origin/a").response();
        (response.status, response.text().to_owned())
    }

    fn curl(&self, arguments: &[&str]) -> Command {
        let mut command = curl();
        command.arg("--unix-socket").arg(self.path()).args(arguments);
        command
    }
}

/// The user that this test runs as.
fn user() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// A provider that responds with the consumer that it is told.
fn telling() -> Provider {
    Provider::with_responses(|request| ok(&request.values("x-seen").concat()))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn curl_names_a_provider_in_every_way_through_a_unix_socket() {
    let (place, origin) = (Place::default(), Provider::plain());
    let _egret = place.config(&origin, "").start();
    let target = format!("{}/a", origin.url());
    for arguments in [
        &["http://localhost/origin/a"][..],
        &["http://localhost:80/origin/a"],
        // As a forward proxy, by `Host`, and by fields.
        &["--request-target", &target, &target],
        &[&target],
        &["-H", &format!("x-egret-host: {}", origin.address()), "http://localhost/a"],
        &["--http2-prior-knowledge", "http://localhost/origin/a"],
        &["--http2-prior-knowledge", &target],
    ] {
        assert_eq!(run_checked(place.curl(arguments).arg("--fail")), "hello", "{arguments:?}");
    }
    let mut client = place.client();
    let authority = origin.address();
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    assert_eq!(client.head().status, 200);
    assert_eq!(client.get(authority, "/a").response().text(), "hello");
    assert!(origin.requests().iter().all(|request| request.target() == "/a"));
}

#[test]
fn python_calls_through_a_unix_socket() {
    let (place, origin) = (Place::default(), Provider::plain());
    let _egret = place.config(&origin, "").start();
    let script = "import sys, httpx\n\
        transport = httpx.HTTPTransport(uds=sys.argv[1])\n\
        client = httpx.Client(transport=transport, base_url='http://localhost/origin')\n\
        print(client.get('/a').text, client.post('/b', content=b'x' * 1000000).status_code)\n\
        both = httpx.HTTPTransport(uds=sys.argv[1], http1=False, http2=True)\n\
        print(httpx.Client(transport=both).get('http://localhost/origin/c').http_version)\n";
    let printed = python(script, &[&place.path().display().to_string()]);
    assert_eq!(printed, "hello 200\nHTTP/2\n");
}

#[test]
fn socks_is_spoken_over_a_unix_socket() {
    let (place, origin) = (Place::default(), Provider::plain());
    let users = format!(", socks5: true, clients: {{ users: {{ checkout: {} }} }}", user());
    for keys in [", socks5: true", &users] {
        let mut egret = place.config(&origin, keys).start();
        let proxy = format!("socks5h://localhost{}", place.path().display());
        let mut call = curl();
        assert_eq!(run_checked(call.args(["--fail", "-x", &proxy, &origin.url()])), "hello", "{keys}");
        egret.terminate();
        assert!(egret.until_ended().success());
    }
}

#[test]
fn egress_rules_judge_hosts_other_than_localhost() {
    let (place, origin) = (Place::default(), Provider::plain());
    let egret = place.config(&origin, "").start();
    for host in ["169.254.169.254".to_owned(), egret.control().to_string()] {
        place.client().get(host, "/").response().assert_generated(403, "egress-denied");
    }
    place.client().get("localhost", "/nobody/").response().assert_generated(404, "unknown-provider");
    assert!(origin.requests().is_empty());
    let other = Provider::plain();
    assert_eq!(place.client().get(other.address(), "/").response().status, 200);
    egret.change_config(place.config(&origin, ", unix_mode: '0666'").yaml());
    let denied = place.client().get(other.address(), "/").response();
    denied.assert_generated(403, "egress-denied");
    assert_eq!(place.get(), (200, "hello".to_owned()));
}

#[test]
fn logs_and_records_name_the_user_and_no_address() {
    let (place, origin) = (Place::default(), Provider::plain());
    let flows = "exporters: { archive: { type: har, directory: har } }\n\
        flows: [{ name: all, diagnoses: [har: { export: archive, obfuscate: false }] }]\n";
    let config = Config::with_origin(origin.url()).listen(["'127.0.0.1:0'", &place.listener("")]);
    let config = config.gateway("access_log: { output: access.log }").gateway("forwarded_for: true");
    let egret = config.control("traffic: { entries: 10, redact: off }").flows(flows).start();
    let traffic = LiveTraffic::open(&egret);
    assert_eq!(place.get(), (200, "hello".to_owned()));
    let named = format!("unix:uid={}", user());
    assert_eq!(traffic.until("provider=origin", 1)[0]["client"], named);
    let log = egret.directory().join("access.log");
    wait::until_true("the access log names the user", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains(&format!("client={named} ")))
    });
    assert!(origin.only_request().values("x-forwarded-for").is_empty());
}

#[test]
fn the_user_of_a_connection_is_the_consumer_until_a_reload() {
    let (place, origin) = (Place::default(), telling());
    let clients = |name: &str, user: u32| {
        place.config(&origin, &format!(", clients: {{ users: {{ {name}: [{user}] }} }}")).flows(SEEN)
    };
    let egret = clients("checkout", user()).start();
    let claims = "GET /origin/a HTTP/1.1\r\nHost: localhost\r\nx-egret-consumer: other\r\n\
                  x-egret-token: 0123456789abcdef\r\n\r\n";
    let mut kept = place.client();
    assert_eq!(kept.send(claims).response().text(), "checkout");
    let stream = ["--fail", "--http2-prior-knowledge", "http://localhost/origin/a"];
    assert_eq!(run_checked(&mut place.curl(&stream)), "checkout");
    egret.change_config(clients("shop", user()).yaml());
    assert_eq!(place.get(), (200, "shop".to_owned()));
    let withdrawn = kept.send(claims).response();
    assert!(withdrawn.status == 407 && withdrawn.text().contains("no longer accepted"), "{withdrawn:?}");
    egret.change_config(clients("shop", user() + 1).yaml());
    let refused = place.client().get("localhost", "/origin/a").response();
    refused.assert_generated(407, "client-unproven");
    assert_eq!(refused.field("proxy-authenticate"), Some("User realm=\"egret\""));
    assert!(refused.text().contains("clients.users"), "{refused:?}");
    let metrics = egret.control_get("/metrics");
    assert!(
        metrics.text().contains("egret_client_unproven_total{reason=\"user\"} 1\n"),
        "{}",
        metrics.text()
    );
}

#[test]
fn two_users_are_two_consumers_and_the_mode_keeps_others_out() {
    let (place, origin) = (Place::default(), telling());
    let mut reach = Command::new("test");
    reach.arg("-x").arg(place.directory.path());
    if user() != 0 || !reach.uid(4001).gid(4001).status().unwrap().success() {
        return println!("not run as root, or others do not reach the directory: other users are not tried");
    }
    let users = ", clients: { users: { checkout: 4001, reports: [4002, root] } }";
    let egret = place.config(&origin, &format!(", unix_mode: '0666'{users}")).flows(SEEN).start();
    let call = |user: u32| {
        let mut call = place.curl(&["http://localhost/origin/a"]);
        let output = run(call.uid(user).gid(user));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!([4001, 4002, 0].map(call), ["checkout", "reports", "reports"]);
    assert!(call(4003).contains("client-unproven"));
    egret.change_config(
        place.config(&origin, &format!(", unix_mode: '0660', unix_group: 4001{users}")).flows(SEEN).yaml(),
    );
    wait::until_true("the permissions are those of the new config", || mode(&place.path()) == 0o660);
    assert_eq!(std::fs::metadata(place.path()).unwrap().gid(), 4001);
    assert_eq!([4001, 4002].map(call), ["checkout", ""]);
}

#[test]
fn a_socket_is_private_replaced_when_stale_and_removed_at_the_end() {
    let (place, origin) = (Place::default(), Provider::plain());
    let config = place.config(&origin, "");
    let first = config.start();
    assert_eq!(mode(&place.path()), 0o600);
    let mut second = first.restart("KILL", &config);
    assert_eq!(place.get().0, 200);
    second.terminate();
    assert!(second.until_ended().success());
    assert!(!place.path().exists());
}

#[test]
fn a_socket_that_another_process_serves_is_an_error_that_names_it() {
    let (place, origin) = (Place::default(), Provider::plain());
    let served = UnixListener::bind(place.path()).unwrap();
    let file = place.directory.write("egret.yaml", place.config(&origin, "").yaml());
    let start = || {
        let mut command = egret(["run", "--config", &file.display().to_string()]);
        let output = run(command.current_dir(place.directory.path()));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = start();
    let named = format!("process {} of user {} accepts connections on it", std::process::id(), user());
    assert!(code == Some(1) && said.contains(&named) && said.contains("choose another path"), "{said}");
    assert!(UnixStream::connect(place.path()).is_ok(), "it is left alone");
    drop(served);
    std::fs::remove_file(place.path()).unwrap();
    std::fs::write(place.path(), "notes").unwrap();
    let (code, said) = start();
    assert!(code == Some(1) && said.contains("a file of another kind"), "{said}");
    assert_eq!(std::fs::read_to_string(place.path()).unwrap(), "notes");
}

#[test]
fn a_hand_over_loses_no_call_and_keeps_the_socket() {
    let (place, origin) = (Arc::new(Place::default()), Provider::plain());
    let mut egret = place.config(&origin, "").start();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (place, stop) = (Arc::clone(&place), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut calls = 0;
                while !stop.load(SeqCst) {
                    assert_eq!(place.get(), (200, "hello".to_owned()));
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for _ in 0..2 {
        let before = origin.requests().len();
        origin.until_requested(before + 20);
        let mut old = egret.take_over();
        assert!(old.until_ended().success(), "{}", old.stderr());
        assert!(place.path().exists());
    }
    stop.store(true, SeqCst);
    assert!(callers.into_iter().all(|caller| caller.join().unwrap() > 0));
    egret.terminate();
    assert!(egret.until_ended().success());
    assert!(!place.path().exists());
}

#[test]
fn a_reload_adds_and_removes_a_socket() {
    let (place, origin) = (Place::default(), Provider::plain());
    let plain = Config::with_origin(origin.url());
    let egret = plain.start();
    egret.change_config(plain.clone().listen(["'127.0.0.1:0'", &place.listener("")]).yaml());
    assert_eq!(place.get().0, 200);
    let info = egret.control_get("/api/v1/gateway").json();
    assert_eq!(info["listeners"][1]["address"], format!("unix:{}", place.path().display()));
    egret.change_config(plain.yaml());
    assert!(!place.path().exists());
    egret.get("/a").assert_forwarded(200);
}

#[test]
fn a_service_manager_passes_a_unix_socket_and_keeps_its_file() {
    let (place, origin) = (Place::default(), Provider::plain());
    let held = UnixListener::bind(place.path()).unwrap();
    let mut egret = Egret::start_with(&place.config(&origin, ""), |command| pass(&held, command));
    assert_eq!(place.get().0, 200);
    egret.terminate();
    assert!(egret.until_ended().success());
    assert!(place.path().exists());
}

#[test]
fn the_option_listen_takes_a_unix_socket() {
    let place = Place::default();
    let mut command = egret(["run", "--control", "127.0.0.1:0", "--listen"]);
    command.arg(format!("unix:{}", place.path().display()));
    let _process = Process::start(command.current_dir(place.directory.path()).stdout(Stdio::null()));
    wait::until_true("somebody listens", || UnixStream::connect(place.path()).is_ok());
    place.client().get("localhost", "/nobody/").response().assert_generated(404, "unknown-provider");
}

#[test]
fn a_mistake_about_a_unix_socket_is_reported_with_its_place() {
    let directory = Directory::default();
    for (listen, expected) in [
        ("'unix:egret.sock'", "must be absolute"),
        ("{ address: 'unix:/run/' }", "must be absolute"),
        ("{ address: 'unix:/run/s', redirect: true }", "not allowed on a Unix socket"),
        ("{ address: 'unix:/run/s', unix_mode: '660' }", "\"0660\""),
        ("{ address: 'unix:/run/s', unix_group: no-such-group }", "has no group `no-such-group`"),
        ("{ address: '127.0.0.1:0', unix_mode: '0660' }", "only allowed on a Unix socket"),
        ("{ address: '127.0.0.1:0', clients: { users: { a: 1 } } }", "only allowed on a Unix socket"),
        ("{ address: 'unix:/run/s', clients: { users: { a: no-such-user } } }", "has no user `no-such-user`"),
        ("{ address: 'unix:/run/s', clients: { users: { a: 1, b: [2, 1] } } }", "is listed twice"),
        ("{ address: 'unix:/run/s', clients: { users: { a: 65534 } } }", "proves nothing"),
    ] {
        let file = directory.write("egret.yaml", format!("gateway: {{ listen: [{listen}] }}\n"));
        let output = run(egret(["check", &file.display().to_string()]).env("NO_COLOR", "1"));
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{listen}: {said}");
    }
}
