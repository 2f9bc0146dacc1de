//! No worker talks to the store: the system calls of a gateway under load show one thread at its socket.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use egret_tests::allowance::Allowance;
use egret_tests::counted::Counted;
use egret_tests::members::{Members, MembersConfig, until_lent};
use egret_tests::process::{Directory, Process};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::{Timeline, pass};
use egret_tests::wait;

/// Time for which system calls are recorded.
const RECORDED: Duration = Duration::from_secs(4);

#[test]
fn one_thread_talks_to_the_store() {
    let line = Timeline::new("threads");
    let (store, provider, files) =
        (RedisServer::start(Flavor::Redis7), Counted::start(), Directory::default());
    let allowances = Allowance::each_short();
    let members = Members::start(&MembersConfig::new(store.config()).queues(&allowances), &provider, 2);
    let _clients = members.all_clients(&allowances, 100);
    until_lent(&provider, &allowances);

    let file = files.join("calls");
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--decode-fds=socket", "--decode-pids=comm", "--quiet=all", "--output"]);
    strace.arg(&file).args(["--trace=connect,read,readv,recvfrom,recvmsg,sendmsg,sendto,write,writev"]);
    strace.args(["--attach", &members.gateway(0).process().id().to_string()]).stdout(Stdio::null());
    let mut tracer = Process::start(&mut strace);
    wait::until_true("system calls are recorded", || {
        std::fs::read_to_string(&file).is_ok_and(|text| !text.is_empty())
    });
    pass(RECORDED);
    // SIGKILL would leave the gateway attached for a moment.
    tracer.signal("INT");
    tracer.until_ended();

    // A line begins with the thread: `123<egret-cluster> sendto(9<TCP:[127.0.0.1:1->127.0.0.1:2]>, ...`.
    let text = std::fs::read_to_string(&file).unwrap();
    let port = format!(":{}]>", store.port());
    let (mut store_calls, mut other_calls) = (BTreeMap::new(), BTreeMap::new());
    for call in text.lines() {
        let thread = call.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        let is_store = call.contains(&port) || call.contains(&format!("htons({})", store.port()));
        *(if is_store { &mut store_calls } else { &mut other_calls }).entry(thread).or_insert(0) += 1;
    }
    line.say(format!("system calls at other sockets and files: {other_calls:?}"));
    let threads: Vec<&String> = store_calls.keys().collect();
    line.claim(threads == ["egret-cluster"], format!("at the socket of the store: {store_calls:?}"));
    let workers: i32 =
        other_calls.iter().filter(|(name, _)| name.contains("worker")).map(|(_, calls)| calls).sum();
    line.claim(workers > 100, format!("{workers} of workers at other sockets"));
}
