//! Two users on one machine: no command of the one trusts a gateway or a file of the other, and no token
//! leaves. Run as root, each set-up with a taken port is tried for root and for an ordinary user.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

use egret_tests::egret::{Config, can_run_as, egret};
use egret_tests::exec::{FREE_PORTS, Place};
use egret_tests::impostor::{Impostor, give_all, give_away};
use egret_tests::process::{run, run_checked};
use egret_tests::relay::Relay;

/// An ordinary user.
const USER: u32 = 1234;

const TOKEN: &str = "t0ken-in-a-variable-of-the-user";
const CREATED: &str = "t0ken-in-a-file-of-the-user";

/// The command that shows in which environment it runs.
const ENVIRONMENT: [&str; 2] = ["--", "env"];

/// The right thing for a command to do.
#[derive(Debug, Clone, Copy)]
enum Right {
    /// It fails with a message that has this text.
    Refuse(&'static str),
    /// It succeeds with a gateway of its own, or prints what anybody may know.
    GoOn,
    /// It may do what it likes with what the program at the named address says.
    Anything,
}

use Right::{Anything, GoOn, Refuse};

const NOT_OURS: &str = "not the gateway of this data directory";
const BELONGS: &str = "it belongs to user 4321";

/// A user's directory, with a config whose control port the impostor has taken.
struct SetUp {
    place: Place,
    impostor: Impostor,
    user: Option<u32>,
}

impl SetUp {
    /// Creates it for this user, or for the one that runs the tests.
    fn new(user: Option<u32>) -> Self {
        let impostor = Impostor::start();
        let place = Place::with(&format!(
            "gateway: {{ listen: ['127.0.0.1:0'] }}\n\
             control: {{ listen: '{}', token: '${{env:EGRET_TEST_TOKEN}}' }}\n",
            impostor.address()
        ));
        fs::create_dir(place.directory.join("egret-data")).unwrap();
        // A gateway has run here before.
        place.directory.write_secret("egret-data/control.key", [7; 32]);
        place.directory.write_secret("egret-data/control-token", CREATED);
        Self { place, impostor, user }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = egret([arguments[0]]);
        command.args(&arguments[1..]).env("EGRET_TEST_TOKEN", TOKEN);
        self.place.prepare(&mut command);
        if let Some(user) = self.user {
            give_all(self.place.directory.path(), user);
            command.uid(user).gid(user);
        }
        command
    }

    /// Runs a command, and asserts that it does what is right and tells the impostor nothing.
    fn try_command(&self, name: &str, command: &mut Command, right: Right) {
        let output = run(command);
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        let what =
            format!("{name}, as user {:?}: {command:?}: {:?}\n{printed}\n{said}", self.user, output.status);
        self.impostor.assert_got_no_token(&what, &[TOKEN, CREATED]);
        match right {
            Refuse(reason) => {
                let all = printed + &said;
                assert!(!output.status.success() && all.contains(reason), "expected {reason:?}: {what}");
            }
            GoOn => {
                // The tests have set these for the command, or they are its own address.
                let leads =
                    printed.lines().any(|line| line.contains("_proxy=") && self.impostor.is_used_by(line));
                assert!(output.status.success() && !leads, "{what}");
            }
            Anything => {}
        }
        self.place.until_gateways_gone();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Counts the set-ups that were tried.
#[derive(Default)]
struct Count {
    tried: usize,
    names: Vec<&'static str>,
}

impl Count {
    fn add(&mut self, name: &'static str) {
        self.tried += 1;
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }
}

fn with<'a>(command: &[&'a str], options: &[&'a str]) -> Vec<&'a str> {
    [&command[..1], options, &command[1..]].concat()
}

/// The users for whom a set-up is tried.
fn users() -> Vec<Option<u32>> {
    if can_run_as(USER) { vec![None, Some(USER)] } else { vec![None] }
}

#[test]
fn no_command_trusts_a_port_that_another_user_has_taken() {
    let mut count = Count::default();
    for user in users() {
        taken_ports(user, &mut count);
        relayed_ports(user, &mut count);
    }
    println!("{} set-ups with taken ports: {}", count.tried, count.names.join(", "));
    assert!(count.tried >= 30, "{}", count.tried);
}

fn taken_ports(user: Option<u32>, count: &mut Count) {
    let exec = [&["exec"], &ENVIRONMENT[..]].concat();
    let intercepting = [&["exec", "--intercept=api.example.com"], &ENVIRONMENT[..]].concat();
    let asking: [(&[&str], Right); 5] = [
        (&["tail"], Refuse(NOT_OURS)),
        (&["discover"], Refuse(NOT_OURS)),
        (&["discover", "--flows"], Refuse(NOT_OURS)),
        (&["doctor"], Refuse(NOT_OURS)),
        (&["health"], Refuse(NOT_OURS)),
    ];
    let running = [(&exec[..], GoOn), (&intercepting[..], GoOn)];
    for (command, right) in asking.into_iter().chain(running) {
        for (name, options) in [("named", &["--config", "egret.yaml"][..]), ("found", &[])] {
            let set_up = SetUp::new(user);
            set_up.try_command(name, &mut set_up.command(&with(command, options)), right);
            count.add(name);
        }
    }
    for (command, right) in asking {
        let set_up = SetUp::new(user);
        let control = set_up.impostor.address().to_string();
        let options = ["--control", &control];
        // A probe believes the address that it names, and tells it nothing.
        let right = if command[0] == "health" { GoOn } else { right };
        set_up.try_command("address named", &mut set_up.command(&with(command, &options)), right);
        count.add("address named");
    }
    for command in [&["tail"][..], &["discover"], &["doctor"], &exec] {
        let set_up = SetUp::new(user);
        fs::remove_file(set_up.place.directory.join("egret-data/control.key")).unwrap();
        let right = if command[0] == "exec" { GoOn } else { Refuse("control.key") };
        set_up.try_command("no key yet", &mut set_up.command(command), right);
        assert!(command[0] == "exec" || !set_up.impostor.was_asked(), "{command:?}");
        let control = set_up.impostor.address().to_string();
        if command[0] != "exec" {
            let named = with(command, &["--control", &control]);
            set_up.try_command("no key yet, address named", &mut set_up.command(&named), Anything);
        }
        count.add("no key yet");
    }
    for command in [&exec, &intercepting] {
        for with_data_dir in [false, true] {
            let set_up = SetUp::new(user);
            set_up.place.directory.write("egret.yaml", FREE_PORTS);
            let data_dir = set_up.place.directory.join("egret-data").display().to_string();
            let data_dir = if with_data_dir { data_dir.as_str() } else { "" };
            let proxy = "http://127.0.0.1:9";
            let mut inner = set_up.command(command);
            inner.env("EGRET_EXEC", format!("{} {data_dir} http_proxy", set_up.impostor.address()));
            set_up.try_command("stale mark", inner.env("http_proxy", proxy), GoOn);
            count.add("stale mark");
        }
    }
}

/// The impostor asks the real gateway, which listens at another address.
fn relayed_ports(user: Option<u32>, count: &mut Count) {
    for command in ["tail", "discover", "doctor", "health", "exec"] {
        let gateway = Config::default().start();
        let relay = Relay::to(gateway.control());
        let set_up = SetUp::new(user);
        let key = fs::read(gateway.directory().join("egret-data/control.key")).unwrap();
        set_up.place.directory.write_secret("egret-data/control.key", key);
        let config = format!("gateway: {{ listen: ['127.0.0.1:0'] }}\n{}", control(relay.address()));
        set_up.place.directory.write("egret.yaml", config);
        if command == "exec" {
            let mut exec = set_up.command(&["exec", "--", "env"]);
            let environment = run_checked(&mut exec);
            let proxy = format!("http_proxy={}", gateway.url());
            assert!(!environment.contains(&proxy), "{environment}");
        } else {
            set_up.try_command("relayed", &mut set_up.command(&[command]), Refuse(NOT_OURS));
        }
        set_up.place.until_gateways_gone();
        // The gateway itself is believed, on a connection without the impostor.
        set_up.place.directory.write("egret.yaml", control(gateway.control()));
        if command != "tail" && command != "exec" {
            run_checked(&mut set_up.command(&[command]));
        }
        count.add("relayed");
    }
}

fn control(address: std::net::SocketAddr) -> String {
    format!("control: {{ listen: '{address}' }}\n")
}

#[test]
fn no_command_trusts_files_of_another_user() {
    let mut count = Count::default();
    found_configs(&mut count);
    data_directories(&mut count);
    planted_files(&mut count);
    println!("{} set-ups with files: {}", count.tried, count.names.join(", "));
    let is_root = users().len() > 1;
    assert!(count.tried >= if is_root { 30 } else { 8 }, "{}", count.tried);
}

/// Every command that reads a config which it finds.
const FINDING: [&[&str]; 9] = [
    &["run"],
    &["exec", "--", "env"],
    &["check"],
    &["explain", "--request", "GET http://a.example/"],
    &["tail"],
    &["discover"],
    &["doctor"],
    &["health"],
    &["ca", "show"],
];

fn found_configs(count: &mut Count) {
    for command in FINDING {
        let set_up = SetUp::new(None);
        let file = set_up.place.directory.join("egret.yaml");
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        set_up.try_command(
            "writable config",
            &mut set_up.command(command),
            Refuse("other users can change it"),
        );
        count.add("writable config");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        if give_away(&file) {
            set_up.try_command("config of another", &mut set_up.command(command), Refuse(BELONGS));
            count.add("config of another");
        }
    }
    for command in [FINDING[1], FINDING[4]] {
        let set_up = SetUp::new(None);
        let directory = set_up.place.directory.path();
        fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
        set_up.try_command(
            "writable directory",
            &mut set_up.command(command),
            Refuse("other users can change it"),
        );
        count.add("writable directory");
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        if give_away(directory) {
            set_up.try_command("directory of another", &mut set_up.command(command), Refuse(BELONGS));
            count.add("directory of another");
        }
    }
    for (name, is_link) in [("link of another", true), ("link to a file of another", false)] {
        let set_up = SetUp::new(None);
        let [link, target] = ["egret.yaml", "target.yaml"].map(|name| set_up.place.directory.join(name));
        fs::rename(&link, &target).unwrap();
        symlink(&target, &link).unwrap();
        if give_away(if is_link { &link } else { &target }) {
            for command in [FINDING[1], FINDING[4]] {
                set_up.try_command(name, &mut set_up.command(command), Refuse(BELONGS));
                count.add(name);
            }
        }
    }
}

fn data_directories(count: &mut Count) {
    let commands: [&[&str]; 7] = [
        &["run", "--config", "egret.yaml"],
        &["exec", "--config", "egret.yaml", "--", "env"],
        &["tail", "--config", "egret.yaml"],
        &["discover", "--config", "egret.yaml"],
        &["doctor", "--config", "egret.yaml"],
        &["ca", "init", "--host", "a.example", "--config", "egret.yaml"],
        &["ca", "show", "--config", "egret.yaml"],
    ];
    for command in commands {
        let set_up = SetUp::new(None);
        if give_away(&set_up.place.directory.join("egret-data")) {
            set_up.try_command("data directory of another", &mut set_up.command(command), Refuse(BELONGS));
            count.add("data directory of another");
        }
    }
}

/// The data directory is the user's own, but others may write to it.
fn planted_files(count: &mut Count) {
    let rest = "interception: { hosts: [api.example.com] }\n\
                exporters: { out: { type: ndjson, directory: out } }\n\
                flows: [{ name: all, diagnoses: [har: { export: out }] }]\n";
    let planted: [(&str, &[&str], Right); 5] = [
        ("egret-data/control.key", &["tail"], Refuse(BELONGS)),
        ("egret-data/exec", &["exec", "--intercept=api.example.com", "--", "env"], Refuse(BELONGS)),
        ("egret-data/ca", &["ca", "show"], Refuse(BELONGS)),
        ("egret-data/ca/ca.key", &["run"], Refuse(BELONGS)),
        ("egret-data/har.key", &["run"], Refuse(BELONGS)),
    ];
    for (file, command, right) in planted {
        let set_up = SetUp::new(None);
        let place = &set_up.place;
        let data_dir = place.directory.join("egret-data");
        place.directory.write("egret.yaml", format!("{FREE_PORTS}{rest}"));
        run_checked(&mut set_up.command(&["ca", "init"]));
        fs::set_permissions(&data_dir, Permissions::from_mode(0o777)).unwrap();
        if file.ends_with("exec") {
            fs::create_dir(data_dir.join("exec")).unwrap();
        } else if file.ends_with("har.key") {
            place.directory.write_secret(file, [7; 32]);
        }
        if give_away(&place.directory.join(file)) {
            set_up.try_command(file, &mut set_up.command(command), right);
            count.add("planted file");
        }
    }
}
