//! From inside of `egret exec --isolate`, nothing leads out but what the page about it lists.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::Path;
use std::process::Command;

use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret, can_run_as};
use egret_tests::exec::{Place, has_namespaces};
use egret_tests::process::{Process, run, run_checked};
use egret_tests::provider::{Provider, ok};
use serde_json::json;

/// The probe.
const WAYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/ways_out.py");

/// The ways that are open, with the place in docs/how-to/connect-a-client.md that says so.
const LISTED: [(&str, &str); 5] = [
    ("unix_file", "sockets in files are accessible as before"),
    ("signal_to_outer_process", "signals reach the user's other processes"),
    ("request_to_provider", "a configured provider"),
    ("connect_allowed", "a rule in `allow`"),
    ("names", "Egret's resolver answers"),
];

/// A user without any privilege, for tests that run as root.
const OTHER_USER: u32 = 1234;

/// The servers outside. All of them answer `outside`.
struct Outside {
    tcp: u16,
    udp: u16,
    provider: Provider,
    allowed: Provider,
    names: NameServer,
    abstract_name: String,
}

impl Outside {
    fn start() -> Self {
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
        let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
        let (tcp, udp) = (listener.local_addr().unwrap().port(), datagrams.local_addr().unwrap().port());
        let abstract_name = format!("egret-outside-{}-{tcp}", std::process::id());
        let address = UnixAddress::from_abstract_name(&abstract_name).unwrap();
        answer_all(UnixListener::bind_addr(&address).unwrap());
        std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
        std::thread::spawn(move || {
            while let Ok((_, from)) = datagrams.recv_from(&mut [0; 600]) {
                let _ = datagrams.send_to(b"outside", from);
            }
        });
        let outside = || Provider::with_responses(|_| ok("outside"));
        let names = NameServer::start(|name| {
            let address =
                if name == "loopback.test" { Ipv4Addr::LOCALHOST } else { Ipv4Addr::new(192, 0, 2, 7) };
            Answer::Addresses(vec![address], 60)
        });
        Self { tcp, udp, provider: outside(), allowed: outside(), names, abstract_name }
    }

    /// The place of the command, whose config names a provider and allows one port.
    fn place(&self) -> Place {
        let (provider, allowed) = (self.provider.url(), port(&self.allowed));
        Place::with(&format!(
            "gateway:\n  listen: ['127.0.0.1:0']\n  egress: {{ allow: [{{ net: 127.0.0.1, ports: [{allowed}] }}] }}\n  {}\n\
             control: {{ listen: 127.0.0.1:0 }}\nproviders: {{ near: {{ url: '{provider}' }} }}\n",
            self.names.config()
        ))
    }
}

fn port(provider: &Provider) -> u16 {
    provider.url().rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap()
}

fn answer(mut peer: impl Read + Write) {
    let mut request = [0; 1024];
    let _ = peer.read(&mut request);
    let _ = peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\noutside");
}

fn answer_all(listener: UnixListener) {
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
}

/// Makes a command run as another user, to whom its directory is given.
fn run_as(command: &mut Command, user: Option<u32>) {
    let Some(user) = user else { return };
    let directory = command.get_current_dir().unwrap().to_owned();
    run_checked(Command::new("chown").arg("-R").arg(format!("{user}:{user}")).arg(&directory));
    let mut other = Command::new("setpriv");
    other.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into(), "--".into()]);
    other.arg(command.get_program()).args(command.get_args()).current_dir(directory);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    *command = other;
}

/// The addresses of this machine other than loopback: the first of each family.
fn own_addresses() -> BTreeMap<&'static str, IpAddr> {
    let printed = String::from_utf8(run(Command::new("hostname").arg("-I")).stdout).unwrap();
    let addresses = printed.split_whitespace().filter_map(|word| word.parse::<IpAddr>().ok());
    addresses.map(|address| (if address.is_ipv4() { "4" } else { "6" }, address)).collect()
}

/// Tries all ways as this user, while a gateway of the user runs or none does. Returns the results by name.
fn tried(user: Option<u32>, has_gateway: bool) -> BTreeMap<String, String> {
    let outside = Outside::start();
    let place = outside.place();
    let running = has_gateway.then(|| Egret::start_with(&Config::default(), |command| run_as(command, user)));
    let file = place.directory.join("outside.sock");
    answer_all(UnixListener::bind(&file).unwrap());
    let mut sleep = Command::new("sleep");
    sleep.arg("3600").current_dir(place.directory.path());
    run_as(&mut sleep, user);
    let outer = Process::start(&mut sleep);
    let gateway = running.as_ref().map_or(outer.id(), |egret| egret.process().id());
    let handover = running.as_ref().map(|egret| egret.directory().join("egret-data/handover.sock"));
    let settings = json!({
        "tcp": outside.tcp, "udp": outside.udp, "provider": port(&outside.provider), "allowed": port(&outside.allowed),
        "control": running.as_ref().map_or(outside.tcp, |egret| egret.control().port()),
        "listen": running.as_ref().map_or(outside.tcp, |egret| egret.address().port()),
        "handover": handover.unwrap_or_else(|| place.directory.join("none.sock")),
        "abstract": outside.abstract_name, "file": file, "outer": outer.id(), "gateway": gateway,
        "addresses": own_addresses(),
    });
    let (config, settings) = (place.directory.join("egret.yaml"), settings.to_string());
    let mut exec = egret_tests::egret::egret(["exec", "--isolate", "--config"]);
    exec.arg(config).args(["--", "python3", WAYS, &settings]);
    place.prepare(&mut exec);
    run_as(&mut exec, user);
    let printed = run_checked(&mut exec);
    place.until_gateways_gone();
    let lines = printed.lines().filter_map(|line| line.split_once('\t'));
    lines.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
}

fn assert_only_listed(user: Option<u32>, has_gateway: bool) {
    let results = tried(user, has_gateway);
    let open: Vec<&str> = results
        .iter()
        .filter(|(_, result)| result.starts_with("out\t"))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut listed = LISTED.map(|(name, _)| name);
    listed.sort_unstable();
    println!("{} ways as {user:?}, gateway {has_gateway}: {} open", results.len(), open.len());
    assert_eq!(open, listed, "{results:#?}");
    assert!(results.len() >= 60, "{}", results.len());
}

#[test]
fn only_listed_ways_lead_out() {
    if has_namespaces() {
        assert_only_listed(None, false);
    }
}

#[test]
fn only_listed_ways_lead_out_beside_a_running_gateway() {
    if has_namespaces() {
        assert_only_listed(None, true);
    }
}

#[test]
fn only_listed_ways_lead_out_for_a_user_without_privileges() {
    if has_namespaces() && can_run_as(OTHER_USER) {
        assert_only_listed(Some(OTHER_USER), false);
    }
}

#[test]
fn only_listed_ways_lead_out_without_privileges() {
    if has_namespaces() && can_run_as(OTHER_USER) {
        assert_only_listed(Some(OTHER_USER), true);
    }
}

#[test]
fn the_page_lists_what_is_open() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/connect-a-client.md");
    let page = std::fs::read_to_string(page).unwrap();
    let text = page.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    for (name, words) in LISTED {
        assert!(text.contains(&words.to_lowercase()), "{name}: {words}");
    }
}
