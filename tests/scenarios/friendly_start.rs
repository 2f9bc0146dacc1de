//! The first minute: a config to start from, found without being named, options for ports and log, and a
//! banner with the ways in.

use std::net::TcpListener;
use std::process::Command;

use egret_tests::egret::{binary, egret};
use egret_tests::http::Client;
use egret_tests::process::{self, Directory, Process, run};
use egret_tests::wait;

/// Returns the command in a directory.
fn command<const N: usize>(directory: &Directory, arguments: [&str; N]) -> Command {
    let mut command = egret(arguments);
    command.current_dir(directory.path());
    command
}

/// Runs a command to its end. Returns exit code and output.
fn outcome(command: &mut Command) -> (Option<i32>, String) {
    let output = run(command);
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

/// Waits for the first line with these parts.
fn line(process: &Process, parts: &[&str]) -> String {
    process.until_prints(&format!("it prints {parts:?}"), |lines| {
        lines.iter().find(|line| parts.iter().all(|part| line.contains(part))).cloned()
    })
}

fn address(line: &str) -> std::net::SocketAddr {
    let rest = line.split_once("address=").unwrap().1;
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn init_writes_a_good_config_and_run_finds_it() {
    let directory = Directory::default();
    let (code, printed) = outcome(&mut command(&directory, ["init"]));
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("egret run &") && printed.contains("egret provider &"), "{printed}");
    let (code, printed) = outcome(&mut command(&directory, ["check"]));
    assert_eq!((code, printed.as_str()), (Some(0), "egret.yaml: OK (1 listener, 1 provider)\n"));
    let (code, printed) = outcome(&mut command(&directory, ["init"]));
    assert_eq!(code, Some(1));
    assert!(printed.contains("exists already") && printed.contains("--force"), "{printed}");
    assert_eq!(outcome(&mut command(&directory, ["init", "--force"])).0, Some(0));
    let request = ["explain", "--request", "GET http://127.0.0.1:8000/example/get"];
    let (code, printed) = outcome(&mut command(&directory, request));
    assert!(code == Some(0) && printed.contains("within-limits"), "{printed}");

    let free = ["run", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    let process = Process::start(&mut command(&directory, free));
    let banner = line(&process, &["egret runs", "config=\"egret.yaml\"", "providers=1", "flows=1"]);
    assert!(banner.contains("page=http://127.0.0.1:"), "{banner}");
    line(&process, &["ways to send traffic", "/example", "http_proxy="]);
}

#[test]
fn options_take_precedence_also_over_a_reloaded_file() {
    let directory = Directory::default();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "gateway: {{ listen: ['{0}'] }}\ncontrol: {{ listen: '{0}' }}\n",
        taken.local_addr().unwrap()
    );
    directory.write("shop.yaml", &text);
    let arguments =
        ["run", "shop.yaml", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--log-level", "debug"];
    let process = Process::start(&mut command(&directory, arguments));
    let gateway = address(&line(&process, &["gateway listening"]));
    directory.write(
        "shop.yaml",
        format!("{text}log: {{ level: error }}\nproviders: {{ a: {{ url: 'http://127.0.0.1:1' }} }}\n"),
    );
    // Logged at `info`, so the option still decides on the level.
    line(&process, &["config reloaded"]);
    // A worker that is held up for a second gets the new config later.
    wait::until_true("the same port serves the new provider", || {
        Client::connect(gateway).get(gateway, "/a/x").response().status == 502
    });
}

#[test]
fn only_the_demo_takes_another_port_by_itself() {
    let directory = Directory::default();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = (taken.local_addr().unwrap(), taken);
    let text = format!("gateway: {{ listen: ['{}'] }}\ncontrol: {{ listen: '127.0.0.1:0' }}\n", taken.0);
    directory.write("egret.yaml", text);
    let (code, printed) = outcome(&mut command(&directory, ["run"]));
    assert_eq!(code, Some(1));
    assert!(printed.contains("--listen IP:PORT") && printed.contains("gateway.listen"), "{printed}");
    let process = Process::start(command(&directory, ["run", "--demo"]).stdout(std::process::Stdio::null()));
    line(&process, &["Another program uses", &taken.0.to_string()]);
    assert_ne!(address(&line(&process, &["gateway listening"])), taken.0);
}

#[test]
fn a_misspelt_file_gets_a_suggestion() {
    let directory = Directory::default();
    directory.write("egret.yaml", "");
    let (code, printed) = outcome(&mut command(&directory, ["run", "egert.yaml"]));
    assert_eq!((code, printed.as_str()), (Some(2), "egert.yaml: no such file; did you mean `egret.yaml`?\n"));
}

#[test]
fn a_file_with_the_other_ending_is_named_and_not_read() {
    let directory = Directory::default();
    directory.write("egret.yml", "");
    let (code, printed) = outcome(&mut command(&directory, ["check"]));
    assert_eq!(
        (code, printed.as_str()),
        (Some(2), "egret.yml is here, but only egret.yaml is read by itself: name the file\n")
    );
}

#[test]
fn a_terminal_shows_colors_and_a_banner_and_a_pipe_neither() {
    let directory = Directory::default();
    directory.write("bad.yaml", "gatway: {}\n");
    let program = binary().canonicalize().unwrap();
    let terminal = |line: &str| {
        let mut command = process::in_terminal(&format!("stty cols 40; {line}"));
        command.current_dir(directory.path()).env("TERM", "xterm");
        command
    };
    let in_terminal = |environment: &str, arguments: &str| {
        outcome(&mut terminal(&format!("{environment} {} {arguments}", program.display())))
    };
    let (code, painted) = in_terminal("", "check bad.yaml");
    assert_eq!(code, Some(2), "{painted}");
    assert!(painted.contains("\u{1b}[1mbad.yaml:1:1:\u{1b}[0m"), "{painted:?}");
    let (code, plain) = in_terminal("NO_COLOR=1", "check bad.yaml");
    let (piped_code, piped) = outcome(&mut command(&directory, ["check", "bad.yaml"]));
    assert_eq!((code, plain.replace("\r\n", "\n")), (piped_code, piped));

    let run = format!("{} run --listen 127.0.0.1:0 --control 127.0.0.1:0", program.display());
    let mut running = Process::printing(&mut terminal(&format!("echo $$; exec env NO_COLOR=1 {run}")));
    let until = |running: &Process, part: &str| {
        running.until_printed(part, |lines| {
            lines.iter().any(|line| line.contains(part)).then(|| lines.join("\n"))
        })
    };
    let id = until(&running, "export http_proxy=").lines().next().unwrap().trim().to_owned();
    process::run_checked(Command::new("sh").args(["-c", &format!("kill {id}")]));
    running.until_ended();
    let banner = until(&running, "in_flight=0");
    for part in [
        "runs. Ctrl-C stops it.",
        "  config     none",
        "  page       http://127.0.0.1:",
        "#token=",
        "export http_proxy=",
    ] {
        assert!(banner.contains(part), "{part:?} in {banner}");
    }
    assert!(banner.contains("signal again (Ctrl-C) to stop at once"), "{banner}");
}
