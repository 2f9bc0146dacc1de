//! Tests of the command line: output, exit codes, and the examples.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

fn egret(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_egret"));
    command
        .args(arguments)
        .current_dir(root())
        .env("EGRET_TOKEN", "a-token-for-tests")
        .env("EGRET_CLUSTER_KEY", "a key for tests, of 32 bytes at least")
        .envs(
            [
                "MAPS_KEY",
                "STRIPE_KEY",
                "WEATHER_KEY_1",
                "WEATHER_KEY_2",
                "OPENAI_API_KEY",
                "ANTHROPIC_KEY_1",
                "ANTHROPIC_KEY_2",
                "GITHUB_TOKEN",
                "AWS_SECRET_ACCESS_KEY",
                "PROXY_PASSWORD",
            ]
            .map(|name| (name, "a key for tests")),
        )
        .env("AWS_ACCESS_KEY_ID", "AKIATEST")
        .envs(["CHECKOUT_TOKEN", "REPORTS_TOKEN"].map(|name| (name, format!("token-for-tests-{name}"))))
        .env_remove("NO_COLOR");
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = egret(arguments).output().expect("egret runs");
    (
        status.code(),
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

/// Creates a separate file for each test.
fn scratch(name: &str, text: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("a directory for the test");
    let file = directory.join("egret.yaml");
    std::fs::write(&file, text).expect("the config is written");
    file
}

/// A running `egret`, stopped immediately when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = egret(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("egret starts");
        let (sender, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Self { child, lines, seen: Vec::new() }
    }

    /// Returns the first line that contains `part` and was not returned before; the two streams come in any
    /// order.
    fn line(&mut self, part: &str) -> String {
        if let Some(index) = self.seen.iter().position(|line| line.contains(part)) {
            return self.seen.remove(index);
        }
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => self.seen.push(line),
                Err(error) => panic!("no line with {part:?} ({error}) after {:#?}", self.seen),
            }
        }
    }

    /// Returns the address in the next line that contains `part`.
    fn address(&mut self, part: &str) -> SocketAddr {
        let line = self.line(part);
        let word = line.split_once("address=").and_then(|(_, rest)| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no address in {line:?}"))
    }

    fn signal(&self, name: &str) {
        self.signal_times(name, 1);
    }

    /// Sends a signal this number of times, without a pause.
    fn signal_times(&self, name: &str, times: usize) {
        let status = Command::new("kill")
            .args(["-s", name])
            .args(vec![self.child.id().to_string(); times])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("egret ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the port takes connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    // In one piece: the control port gives a head a second to arrive.
    stream.write_all(request.as_bytes()).expect("the request is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response arrives");
    response
}

const FREE_PORTS: &str = "gateway: { listen: [127.0.0.1:0] }\ncontrol: { listen: 127.0.0.1:0 }\n";

#[test]
fn version_and_schema_go_to_standard_output() {
    let machine = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    assert_eq!(
        output(&["version"]),
        (Some(0), format!("egret {} ({machine})\n", env!("CARGO_PKG_VERSION")), String::new())
    );
    let (code, schema, errors) = output(&["schema"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("the schema is JSON");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn wrong_usage_is_exit_code_2_and_goes_to_standard_error() {
    for arguments in
        [&[][..], &["serve"], &["check"], &["run", "--confg", "x"], &["provider", "--listen", "9000"]]
    {
        let (code, out, errors) = output(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(errors.contains("Usage: egret") || errors.contains("--help"), "{errors}");
    }
    let (code, help, _) = output(&["--help"]);
    assert!(code == Some(0) && help.contains("check"), "{help}");
}

#[test]
fn a_bad_config_is_exit_code_2_with_every_problem() {
    let file =
        scratch("bad", "gateway:\n  listen: [127.0.0.1:0]\nlog: { levl: info }\nproviders:\n  a: {}\n");
    let name = file.to_str().expect("a path in UTF-8");
    let expected = format!(
        "{name}:3:8: log.levl: unknown key `levl`, expected one of `level`, `format`; did you mean `level`?\n\
         3 | log: {{ levl: …\n  |        ^^^^\n\n\
         {name}:5:3: providers.a: the key `url` is missing: write `url: https://api.example.com`, \
         or the `preset` of the provider\n5 |   a: {{}}\n  |   ^\n"
    );
    assert_eq!(output(&["check", name]), (Some(2), String::new(), expected.clone()));
    assert_eq!(output(&["run", "--config", name]), (Some(2), String::new(), expected));
}

#[test]
fn a_missing_config_file_is_exit_code_2() {
    let (code, _, errors) = output(&["run", "--config", "/no/such.yaml"]);
    assert_eq!(code, Some(2));
    assert_eq!(
        errors,
        "/no/such.yaml: no such file; `egret init /no/such.yaml` writes a config to start from\n"
    );
}

/// Returns the same config with ports that the system chooses.
fn with_free_ports(text: &str) -> String {
    let mut config: serde_json::Value = serde_saphyr::from_str(text).expect("the example is YAML");
    let listeners = config["gateway"]["listen"].as_array().cloned().unwrap_or_default();
    let listeners = listeners.into_iter().map(|mut listener| match listener.get("address").map(free_port) {
        Some(address) => {
            listener["address"] = address;
            listener
        }
        None => free_port(&listener),
    });
    let listeners: Vec<_> = listeners.collect();
    config["gateway"]["listen"] =
        if listeners.is_empty() { vec!["127.0.0.1:0"].into() } else { listeners.into() };
    config["control"]["listen"] = match &config["control"]["listen"] {
        serde_json::Value::Null => "127.0.0.1:0".into(),
        address => free_port(address),
    };
    config.to_string()
}

fn free_port(address: &serde_json::Value) -> serde_json::Value {
    let mut address: SocketAddr =
        address.as_str().and_then(|address| address.parse().ok()).expect("an address");
    address.set_port(0);
    address.to_string().into()
}

/// Examples with keys of clouds and secrets in managers, which only those have. Scenarios play stand-ins.
const ELSEWHERE: [&str; 2] = ["cloud-identities", "secret-managers"];

#[test]
fn every_example_is_good_and_starts() {
    let mut names: Vec<PathBuf> = std::fs::read_dir(root().join("examples"))
        .expect("examples")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    assert!(names.len() >= 5, "{names:?}");
    for path in names {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8");
        let name = format!("examples/{stem}.yaml");
        let is_elsewhere = ELSEWHERE.contains(&stem);
        let arguments: &[&str] =
            if is_elsewhere { &["check", "--no-secrets", &name] } else { &["check", &name] };
        let (code, out, errors) = output(arguments);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        assert!(out.starts_with(&format!("{name}: OK (")), "{out}");
        if is_elsewhere {
            continue;
        }

        let text = with_free_ports(&std::fs::read_to_string(&path).expect("the example is read"));
        let file = scratch(&format!("example-{stem}"), &text);
        let mut running = Running::start(&["run", "--config", file.to_str().expect("a path in UTF-8")]);
        running.line("gateway listening");
        running.signal("TERM");
        assert_eq!(running.wait().code(), Some(0), "{name}: {:#?}", running.seen);
    }
}

#[test]
fn the_control_port_is_ready_once_egret_says_so() {
    let text = format!("{FREE_PORTS}providers: {{ shop: {{ url: 'http://127.0.0.1:1' }} }}\n");
    let file = scratch("ready", &text);
    let mut running = Running::start(&["run", "--config", file.to_str().expect("a path in UTF-8")]);
    let control = running.address("control port listening");
    running.line("gateway listening");
    assert!(get(control, "/readyz").starts_with("HTTP/1.1 200"));
    let config = get(control, "/api/v1/config");
    assert!(config.contains("\"shop\"") && config.contains("http://127.0.0.1:1"), "{config}");
}

#[test]
fn a_changed_file_is_applied_unless_it_is_bad() {
    let file = scratch("reload", FREE_PORTS);
    let replace = |text: &str| {
        let new = file.with_extension("new");
        std::fs::write(&new, text).expect("the new config is written");
        std::fs::rename(&new, &file).expect("the new config is put in place");
    };
    let mut running = Running::start(&["run", "--config", file.to_str().expect("a path in UTF-8")]);
    let control = running.address("control port listening");
    running.line("gateway listening");

    replace(&format!("{FREE_PORTS}providers: {{ shop: {{ url: 'http://127.0.0.1:1' }} }}\n"));
    running.line("config reloaded");
    assert!(get(control, "/api/v1/config").contains("\"shop\""));

    replace(&format!("{FREE_PORTS}providers: {{ shap: {{ ulr: 'http://127.0.0.1:1' }} }}\n"));
    let refused = running.line("config refused");
    assert!(refused.contains("egret.yaml:3:22: providers.shap.ulr: unknown key `ulr`"), "{refused}");
    running.line("the previous config stays in effect");
    assert!(get(control, "/api/v1/config").contains("\"shop\""));
    assert!(
        get(control, "/api/v1/stats").contains("\"reloads_refused\":1"),
        "{}",
        get(control, "/api/v1/stats")
    );

    replace("");
    assert!(running.line("config refused").contains("the file is empty"));

    replace(&format!(
        "{FREE_PORTS}data_dir: elsewhere\nproviders: {{ shop: {{ url: 'http://127.0.0.1:2' }} }}\n"
    ));
    assert!(running.line("only a restart applies it").contains("data_dir"));
    running.line("config reloaded");
    let config = get(control, "/api/v1/config");
    assert!(config.contains("http://127.0.0.1:2") && config.contains("./egret-data"), "{config}");

    running.signal("HUP");
    running.line("config reloaded");
}

#[test]
fn a_provider_that_is_not_verified_is_warned_of_by_name() {
    let text = format!(
        "{FREE_PORTS}providers: {{ blind: {{ url: 'https://127.0.0.1:1', tls: {{ verify: dangerously-off }} }} }}\n"
    );
    let file = scratch("blind", &text);
    let mut running = Running::start(&["run", "--config", file.to_str().expect("a path in UTF-8")]);
    assert!(running.line("tls.verify is dangerously-off").contains("blind"));
}

#[test]
fn a_taken_port_is_named_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    for (part, text) in [
        ("control", format!("gateway: {{ listen: [127.0.0.1:0] }}\ncontrol: {{ listen: {address} }}\n")),
        ("gateway", format!("gateway: {{ listen: [{address}] }}\ncontrol: {{ listen: 127.0.0.1:0 }}\n")),
    ] {
        let file = scratch(&format!("taken-{part}"), &text);
        let (code, _, errors) = output(&["run", "--config", file.to_str().expect("a path in UTF-8")]);
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains(&address.to_string()), "{errors}");
        let option = if part == "control" { "--control" } else { "--listen" };
        let advice =
            format!("choose another address with `{option} IP:PORT`, or with `{part}.listen` in the config");
        assert!(errors.contains(&advice), "{errors}");
    }
}

#[test]
fn json_logs_are_json_and_the_interrupt_signal_stops_too() {
    let file = scratch("json", &format!("{FREE_PORTS}log: {{ format: json, level: debug }}\n"));
    let mut running = Running::start(&["run", "--config", file.to_str().expect("a path in UTF-8")]);
    let line: serde_json::Value =
        serde_json::from_str(&running.line("gateway listening")).expect("a line of JSON");
    assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"gateway listening".into()));
    assert!(line["address"].as_str().is_some_and(|address| address.parse::<SocketAddr>().is_ok()), "{line}");
    running.signal("INT");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn the_demo_prints_a_heading_three_lines_that_work_and_the_page() {
    let file = scratch("demo", FREE_PORTS);
    let mut running = Running::start(&["run", "--demo", "--config", file.to_str().expect("a path in UTF-8")]);
    running.line("Egret is running.");
    let lines: Vec<String> = (0..3).map(|_| running.line("curl")).collect();
    let part =
        |line: usize, word: usize| lines[line].split_whitespace().nth(word).unwrap_or_default().to_owned();
    let address = |url: &str| {
        url.trim_start_matches("http://")
            .split('/')
            .next()
            .and_then(|address| address.parse().ok())
            .expect("an address")
    };
    let gateway: SocketAddr = address(&part(0, 2));
    assert!(get(gateway, "/demo/get").starts_with("HTTP/1.1 200"), "{lines:?}");
    assert_eq!(address(&part(1, 3)), gateway);
    assert!(get(gateway, &part(1, 4)).starts_with("HTTP/1.1 200"), "{lines:?}");
    let control = address(&part(2, 1));
    assert!(get(control, "/metrics").starts_with("HTTP/1.1 200"), "{lines:?}");
    let page = running.line("The control page");
    let (_, url) = page.rsplit_once(' ').expect("the address is the last word");
    assert_eq!((address(url), url.ends_with('/')), (control, true));
    assert!(get(control, "/").starts_with("HTTP/1.1 200"), "{page}");
}

/// Starts a demo with a stream of server-sent events in progress.
fn streaming(name: &str, target: &str) -> (Running, BufReader<TcpStream>) {
    let file = scratch(name, FREE_PORTS);
    let mut running = Running::start(&["run", "--demo", "--config", file.to_str().expect("a path in UTF-8")]);
    let gateway = running.address("gateway listening");
    running.line("/metrics");
    let mut stream = TcpStream::connect(gateway).expect("the port takes connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {gateway}\r\n\r\n").expect("the request is sent");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("data:") {
        line.clear();
        assert!(stream.read_line(&mut line).expect("events come") > 0, "the stream ended early");
    }
    (running, stream)
}

#[test]
fn being_told_to_stop_lets_what_is_under_way_end() {
    assert!((0..5).any(|_| drains()), "it stops at once");
}

/// Tells a demo to stop during a stream. Returns `false` if it has stopped at once: on a busy machine, the
/// second of two signals may come too late to belong to the first one.
fn drains() -> bool {
    let (mut running, mut stream) = streaming("drain", "/demo/sse?count=4&duration=1s");
    // Like `timeout`, which signals the process and then its group.
    running.signal_times("TERM", 2);
    let mut rest = String::new();
    let ended = stream.read_to_string(&mut rest);
    let code = running.wait().code();
    if code == Some(1) {
        running.line("stopped immediately");
        return false;
    }
    ended.expect("the stream ends well");
    assert_eq!(rest.matches("data:").count(), 3, "{rest}");
    let (_, end) = rest.rsplit_once("\r\n0\r\n").expect("the last chunk came");
    assert!(end.starts_with("server-timing: ") && end.ends_with("\r\n\r\n"), "and the trailer: {rest}");
    running.line("drained");
    assert_eq!(code, Some(0));
    true
}

#[test]
fn being_told_twice_stops_at_once() {
    let (mut running, _stream) = streaming("twice", "/demo/sse?count=10&duration=10s");
    running.signal("TERM");
    running.line("draining");
    running.signal("INT");
    running.line("stopped immediately");
    assert_eq!(running.wait().code(), Some(1));
}

#[test]
fn the_provider_runs_alone_until_it_is_told_to_stop() {
    let mut running = Running::start(&["provider", "--listen", "127.0.0.1:0"]);
    let address = running.address("provider listening");
    assert!(get(address, "/status/204").starts_with("HTTP/1.1 204"));
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0));
}
