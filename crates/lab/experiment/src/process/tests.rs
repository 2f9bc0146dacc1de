//! Tests that a process group is measured and ended as a whole.

use super::*;

fn shell(script: &str, log: &Path) -> Launch {
    Launch {
        environment: BTreeMap::new(),
        name: "the shell".into(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        directory: std::env::temp_dir(),
        stdout: log.to_owned(),
        stderr: log.to_owned(),
        home: std::env::temp_dir(),
        core: crate::affinity::cores().first().copied(),
    }
}

fn log(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("egret-lab-{name}-{}", std::process::id()))
}

fn until(what: &str, mut found: impl FnMut() -> bool) {
    let start = Instant::now();
    while !found() {
        assert!(start.elapsed() < Duration::from_mins(4), "timed out waiting until {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_group_is_measured_as_one_and_leaves_nobody_behind() {
    let log = log("group");
    // Two processes that use CPU time. The leader ignores SIGTERM.
    let launch = shell("trap '' TERM; (while :; do :; done) & echo $! >&2; while :; do :; done", &log);
    let part = MeasuredProcess::start(&launch).unwrap();
    until("two processes run", || group(part.child.id()).len() == 2);
    until("they have used time", || part.cpu_s() >= 0.1);
    assert!(part.usage().memory_bytes > 0);
    let leader = part.child.id();
    drop(part);
    // A killed process that its parent has not waited for disappears when init reaps it.
    until("nobody is left", || group(leader).iter().all(|stat| memory_bytes(stat.pid) == 0));
    std::fs::remove_file(log).unwrap();
}

#[test]
fn cpu_time_of_ended_processes_is_counted() {
    let log = log("ended");
    let before = ended_cpu_s();
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let mut part = MeasuredProcess::start(&shell(script, &log)).unwrap();
    until("it has ended", || part.ended().is_some());
    assert!(ended_cpu_s() > before);
    std::fs::remove_file(log).unwrap();
}

#[test]
fn a_part_that_ends_leaves_its_last_words() {
    let log = log("words");
    let mut part = MeasuredProcess::start(&shell("echo no such option >&2; exit 3", &log)).unwrap();
    assert_eq!(part.child.wait().unwrap().code(), Some(3));
    assert_eq!(part.last_lines(), "    no such option");
    std::fs::remove_file(log).unwrap();
}
