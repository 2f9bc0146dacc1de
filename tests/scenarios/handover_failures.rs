//! A hand-over that fails leaves the running Egret as it was.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use egret_tests::egret::{Config, Egret};
use egret_tests::process::{Process, run};
use egret_tests::provider::Provider;
use egret_tests::wait;

fn start(origin: &Provider) -> Egret {
    let yaml =
        "quotas: { q: { limit: 5, window: 1h } }\nflows: [{ name: all, remedies: [limit: { quota: q }] }]\n";
    Config::with_origin(origin.url()).flows(yaml).start()
}

fn socket(egret: &Egret) -> std::path::PathBuf {
    egret.directory().join("egret-data/handover.sock")
}

/// Sends a message and returns the response; empty if the channel closes.
fn ask(egret: &Egret, message: &str) -> String {
    let mut stream = UnixStream::connect(socket(egret)).unwrap();
    stream.set_read_timeout(Some(wait::DEADLINE)).unwrap();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, message.as_bytes()].concat()).unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(response.get(4..).unwrap_or_default()).into_owned()
}

#[test]
fn a_new_process_with_a_bad_config_asks_for_nothing() {
    let origin = Provider::plain();
    let egret = start(&origin);
    let good = std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap();
    egret.get("/").assert_forwarded(200);
    egret.directory().write("egret.yaml", format!("{good}no_such_key: 1\n"));
    let output = run(&mut egret.successor());
    assert_eq!(output.status.code(), Some(2));
    egret.directory().write("egret.yaml", good);
    for _ in 0..4 {
        egret.get("/").assert_forwarded(200);
    }
    egret.get("/").assert_generated(429, "quota-exceeded");
    assert!(!egret.log().contains("handed over"), "{}", egret.log());
}

#[test]
fn messages_of_another_version_and_nonsense_are_refused() {
    let origin = Provider::plain();
    let mut egret = start(&origin);
    let refused = ask(&egret, "{\"hello\":{\"version\":0,\"pid\":1}}");
    assert!(refused.contains("refused") && refused.contains("version 1"), "{refused}");
    for nonsense in ["", "{", "[]", "\"take\"", "{\"state\":{}}", "{\"hello\":{\"version\":\"x\"}}"] {
        assert_eq!(ask(&egret, nonsense), "", "{nonsense}");
    }
    // One that leaves after it has got the sockets.
    drop(ask(&egret, "{\"hello\":{\"version\":1,\"pid\":1}}{"));
    egret.get("/").assert_forwarded(200);
    let mut old = egret.take_over();
    assert!(old.until_ended().success(), "{}", old.stderr());
    egret.get("/").assert_forwarded(200);
}

#[test]
fn the_socket_is_for_the_same_user_alone() {
    let origin = Provider::plain();
    let egret = start(&origin);
    let mode = std::fs::symlink_metadata(socket(&egret)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Only root can be another user.
    if std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() != 0 {
        return;
    }
    // Even if the file could be opened, nothing is sent.
    let path = socket(&egret);
    for directory in
        path.ancestors().skip(1).take_while(|directory| directory.starts_with(egret.directory().path()))
    {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let script = "import socket,sys,json\n\
                  s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1])\n\
                  m=json.dumps({'hello':{'version':1,'pid':1}}).encode()\n\
                  try:\n  s.sendall(len(m).to_bytes(4,'big')+m);print(len(s.recv(100)))\n\
                  except OSError: print(0)\n";
    let mut other = Command::new("/usr/bin/python3");
    let output = run(other.args(["-c", script]).arg(&path).uid(65_534).gid(65_534));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.trim(), "0", "{}", String::from_utf8_lossy(&output.stderr));
    egret.until_logged("belongs to another user");
    egret.get("/").assert_forwarded(200);
}

#[test]
fn without_a_running_egret_it_starts_as_usual() {
    let origin = Provider::plain();
    let mut egret = start(&origin);
    let path = socket(&egret);
    egret.process().signal("KILL");
    egret.until_ended();
    assert!(path.exists(), "the socket of the dead process is still there");
    let new = Process::start(&mut egret.successor());
    new.until_prints("it says so", |lines| {
        lines.iter().any(|line| line.contains("no Egret runs that could be taken over from")).then_some(())
    });
    new.until_prints("it listens", |lines| {
        lines.iter().any(|line| line.contains("gateway listening")).then_some(())
    });
    wait::until_true("it offers itself", || UnixStream::connect(&path).is_ok());
    let mut new = new;
    new.signal("TERM");
    assert!(new.until_ended().success(), "{}", new.stderr());
    assert!(!path.exists(), "it removes its socket");
}
