//! Exporters that cannot work: traffic is not affected, memory stays bounded, losses are counted and logged
//! once.

use std::process::Command;
use std::thread;

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::permits;
use egret_tests::process::{run, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{
    assert_verified, diagnosed, entries, exporter, files, lines_with, lost, until_exporter,
};
use egret_tests::wait;
use serde_json::Value;

/// Maximum additional memory of recording: rings, queues of exporters, and the allocator's reserve.
const MEMORY_MAX: u64 = 160 << 20;

/// Starts a provider whose responses are so long that some hundred exchanges fill every bounded buffer.
fn provider() -> Provider {
    Provider::responding(ok(&"all is well ".repeat(5_000)))
}

/// Records everything of every exchange with an exporter named `out`.
fn config(exporter: &str, origin: &Provider) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "exporters: {{ out: {exporter} }}\n\
         flows: [{{ name: all, diagnoses: [har: {{ export: out, bodies: 64KiB, media_types: ['*/*'], obfuscate: false, detect_secrets: false }}] }}]\n"
    ))
}

fn start(exporter: &str, origin: &Provider) -> Egret {
    Egret::start_with(&config(exporter, origin), |command| {
        command.env("AWS_ACCESS_KEY_ID", "id").env("AWS_SECRET_ACCESS_KEY", "key");
    })
}

/// Sends requests until `probe` is satisfied, and then more than can be recorded; every response must be as
/// if nothing were recorded. Returns the exporter's counters after that.
fn under_load(egret: &Egret, what: &str, probe: impl Fn(&Value) -> bool) -> Value {
    let _permit = permits::busy();
    let seen = || ["recorded", "dropped", "shed"].iter().map(|what| diagnosed(egret, what)).sum::<u64>();
    let until_idle = || wait::until_true("none waits", || diagnosed(egret, "queued") == 0);
    let call = |client: &mut Client, count: u64| {
        for _ in 0..count {
            client.get(egret.address(), "/origin/").response().assert_forwarded(200);
        }
    };
    let (mut client, mut completed) = (egret.client(), 0);
    let mut put = || {
        call(&mut client, AT_ONCE);
        completed += AT_ONCE;
        // A client that does not wait takes the processor from the thread that feeds the exporter.
        until_idle();
        exporter(egret, "out")
    };
    // Their number bounds it, not a time: on a busy machine each batch may take seconds.
    let reached = (0..BATCHES_MAX).map(|_| put()).any(|out| probe(&out));
    assert!(reached, "in vain until {what}: {}", exporter(egret, "out"));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| call(&mut egret.client(), EACH));
        }
    });
    completed += CLIENTS * EACH;
    until_idle();
    assert_eq!((seen(), diagnosed(egret, "failed")), (completed, 0), "each is counted once");
    let memory = egret.process().resident_bytes_max();
    assert!(memory < MEMORY_MAX, "{memory} bytes");
    egret.assert_well();
    wait::until_true("the exchange of the check is counted", || seen() == completed + 1);
    until_exporter(egret, "out", "all are given to it", |out| out["put"] == diagnosed(egret, "recorded"))
}

/// Asserts that metrics show the exporter as down, and that the log reports it once.
fn assert_told(egret: &Egret, out: &Value) {
    assert_eq!(out["up"], false, "{out}");
    assert!(!out["last_error"].as_str().unwrap_or_default().is_empty(), "{out}");
    // An entry may be dropped a moment after it was put, so the metrics are read between two equal counts.
    let dropped = || until_exporter(egret, "out", "there are counts", |_| true)["dropped"].take();
    let (metrics, dropped) = wait::until("no more is dropped", || {
        let before = dropped();
        let metrics = egret.control_get("/metrics");
        (dropped() == before).then_some((metrics, before))
    });
    let metrics = metrics.text();
    assert!(metrics.contains("egret_exporter_up{exporter=\"out\"} 0"), "{metrics}");
    for (reason, count) in dropped.as_object().unwrap() {
        let line = format!("egret_exporter_dropped_total{{exporter=\"out\",reason=\"{reason}\"}} ");
        let counted = metrics.lines().find_map(|text| text.strip_prefix(line.as_str())?.parse::<u64>().ok());
        assert_eq!(counted.unwrap_or(0), count.as_u64().unwrap(), "{line}");
    }
    let log = egret.log_with("the exporter fails");
    assert_eq!(log.matches("the exporter fails").count(), 1, "{log}");
    assert_eq!(lines_with(egret, "the exporter works again"), 0);
}

/// Number of exchanges that take less memory than the limit.
const SOME: u64 = 100;
/// Number of exchanges after which a client waits until they are recorded.
const AT_ONCE: u64 = 25;
/// More of these than fill any memory, spool or disk.
const BATCHES_MAX: u64 = 200;
/// Clients that do not wait, and the exchanges of each.
const CLIENTS: u64 = 4;
const EACH: u64 = 100;

fn is_down(out: &Value) -> bool {
    out["up"] == false && out["put"].as_u64() > Some(AT_ONCE)
}

#[test]
fn collectors_and_stores_that_are_away() {
    let (origin, closed) = (provider(), ClosedPort::take());
    let nobody = closed.address();
    let exporters = [
        format!(
            "{{ type: alf, version: 2.0.0, transport: {{ zeromq: 'tcp://{nobody}' }}, flush_after: 50ms }}"
        ),
        format!(
            "{{ type: alf, version: 2.0.0, transport: {{ http: 'http://{nobody}' }}, flush_after: 50ms }}"
        ),
        format!("{{ type: s3, endpoint: 'http://{nobody}', bucket: b, rotate: 64KiB }}"),
    ];
    for exporter in exporters {
        let egret = start(&exporter, &origin);
        // They fit in memory: the fate of more would depend on the speed of the disk.
        let mut client = egret.client();
        for _ in 0..SOME {
            client.get(egret.address(), "/origin/").response().assert_forwarded(200);
        }
        let out = until_exporter(&egret, "out", "all of it is spooled", |out| {
            out["up"] == false && out["put"] == SOME && out["spooled_bytes"].as_u64() > Some(0)
        });
        assert_eq!((lost(&out), &out["written"]), (0, &0.into()), "all of it waits: {out}");
        assert_told(&egret, &out);
    }
}

#[test]
fn a_store_that_refuses() {
    let origin = provider();
    let body = "<Error><Code>AccessDenied</Code></Error>";
    let store = Provider::responding(format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let egret =
        start(&format!("{{ type: s3, endpoint: '{}', bucket: b, rotate: 64KiB }}", store.url()), &origin);
    let out = under_load(&egret, "it refuses", is_down);
    assert_eq!(lost(&out), 0, "{out}");
    assert!(out["last_error"].as_str().unwrap().contains("403"), "{out}");
    assert_told(&egret, &out);
}

#[test]
fn a_full_spool_loses_the_oldest() {
    let origin = provider();
    let closed = ClosedPort::take();
    let nobody = closed.address();
    let egret = start(
        &format!(
            "{{ type: alf, version: 2.0.0, transport: {{ http: 'http://{nobody}' }}, flush_after: 50ms, spool: 16MiB }}"
        ),
        &origin,
    );
    let out = under_load(&egret, "the spool is full", |out| out["dropped"]["spool-full"].as_u64() > Some(0));
    assert!(out["spooled_bytes"].as_u64().unwrap() <= 16 << 20, "{out}");
    // If the disk is slower than the load, exchanges are dropped meanwhile.
    let reasons = ["spool-full", "full"].map(|reason| out["dropped"][reason].as_u64().unwrap());
    assert_eq!(lost(&out), reasons.iter().sum::<u64>(), "{out}");
    assert_told(&egret, &out);
}

#[test]
fn a_directory_that_cannot_be_made_or_written() {
    let origin = provider();
    for (kind, directory) in [("har", "./egret.yaml/har"), ("ndjson", "./egret.yaml/har"), ("har", "./mine")]
    {
        let exporter = format!("{{ type: {kind}, directory: {directory} }}");
        let egret = Egret::start_with(&config(&exporter, &origin), |command| {
            let run = command.get_current_dir().unwrap().join("mine");
            std::fs::create_dir(&run).unwrap();
            run_checked(Command::new("chmod").arg("555").arg(&run));
            // Permissions do not restrict the superuser unless this capability is dropped.
            if run_checked(Command::new("id").arg("-u")).trim() == "0" {
                within(command, &["setpriv", "--bounding-set=-dac_override,-dac_read_search"]);
            }
        });
        let out = under_load(&egret, "it fails", |out| is_down(out) && lost(out) > 0);
        assert_eq!((&out["written"], lost(&out)), (&0.into(), out["dropped"]["full"].as_u64().unwrap()));
        assert_told(&egret, &out);
        run_checked(Command::new("chmod").arg("755").arg(egret.directory().join("mine")));
    }
}

/// Runs the command within another program.
fn within(command: &mut Command, wrapper: &[&str]) {
    let mut wrapped = Command::new(wrapper[0]);
    wrapped.args(&wrapper[1..]).arg(command.get_program()).args(command.get_args());
    wrapped.current_dir(command.get_current_dir().unwrap());
    *command = wrapped;
}

/// Waits until an exporter counts as many entries as written as `kept` finds in its files. An entry may be
/// written between the two looks.
fn until_kept(egret: &Egret, kept: impl Fn() -> usize) {
    let counts = || (exporter(egret, "out")["written"].as_u64().unwrap(), kept() as u64);
    wait::until_value("the files hold what is counted", counts, |(counted, kept)| counted == kept);
}

#[test]
fn files_that_may_grow_no_more() {
    let origin = provider();
    let egret_config = config("{ type: har, directory: ./har, rotate: 64MiB }", &origin);
    let mut egret = Egret::start_with(&egret_config, |command| {
        within(command, &["prlimit", "--fsize=1048576:unlimited"]);
    });
    let out = under_load(&egret, "something is lost", |out| is_down(out) && lost(out) > 0);
    assert_eq!(lost(&out), out["dropped"]["full"].as_u64().unwrap(), "{out}");
    assert_told(&egret, &out);
    let directory = egret.directory().join("har");
    until_kept(&egret, || entries(&files(&directory)).len());
    assert_verified(&files(&directory));
    // There is space again: pending entries are written, at shutdown at the latest.
    run_checked(Command::new("prlimit").args([
        "--pid",
        &egret.process().id().to_string(),
        "--fsize=unlimited:unlimited",
    ]));
    egret.terminate();
    assert!(egret.until_ended().success());
    let kept = entries(&files(&directory)).len() as u64;
    assert_eq!(kept, out["put"].as_u64().unwrap() - lost(&out));
    assert_verified(&files(&directory));
    assert_eq!(lines_with(&egret, "the exporter works again"), 1);
    assert_eq!(lines_with(&egret, "are lost"), 0, "nothing waited any more when it ended");
}

#[test]
fn a_disk_that_is_full() {
    let mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"];
    if !run(Command::new(mount[0]).args(&mount[1..]).arg("mount -t tmpfs -o size=2m tmpfs /mnt"))
        .status
        .success()
    {
        eprintln!("left out: this user may not mount a file system in a namespace of its own");
        return;
    }
    let origin = provider();
    let script = "mkdir disk && mount -t tmpfs -o size=2m tmpfs disk && exec \"$@\"";
    for kind in ["har", "ndjson"] {
        let egret = Egret::start_with(
            &config(&format!("{{ type: {kind}, directory: ./disk/har }}"), &origin),
            |command| {
                within(command, &[&mount[..], &[script, "sh"]].concat());
            },
        );
        let out = under_load(&egret, "something is lost", |out| is_down(out) && lost(out) > 0);
        assert_eq!(lost(&out), out["dropped"]["full"].as_u64().unwrap(), "{out}");
        assert!(out["last_error"].as_str().unwrap().contains("No space left"), "{out}");
        assert_told(&egret, &out);
        // Only the process sees this disk.
        let root =
            format!("/proc/{}/root{}", egret.process().id(), egret.directory().join("disk/har").display());
        let files = || files(root.as_ref());
        if kind == "har" {
            until_kept(&egret, || entries(&files()).len());
            assert_verified(&files());
        } else {
            let text =
                || files().iter().map(|file| std::fs::read_to_string(file).unwrap()).collect::<String>();
            let is_whole = |line: &&str| serde_json::from_str::<Value>(line).is_ok();
            // A torn line is never whole, and counts for nothing.
            until_kept(&egret, || text().lines().filter(is_whole).count());
            // The next attempt to write tears one for a moment.
            wait::until_true("no line is torn", || text().lines().all(|line| is_whole(&line)));
        }
    }
}
