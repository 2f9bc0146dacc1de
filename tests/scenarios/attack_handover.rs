//! Attacks on the hand-over: processes of the same user that are silent, or misuse the sockets.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::process::run_checked;
use egret_tests::timeline::pass;

fn connect(egret: &Egret) -> UnixStream {
    UnixStream::connect(egret.directory().join("egret-data/handover.sock")).unwrap()
}

#[test]
fn silent_peers_do_not_keep_a_successor_waiting() {
    let mut egret = Config::default().start();
    let mut silent: Vec<UnixStream> = (0..4).map(|_| connect(&egret)).collect();
    // One that sends the beginning of a message.
    silent[0].write_all(&[0, 0, 0, 9, b'{']).unwrap();
    let mut old = egret.take_over();
    assert!(old.until_ended().success(), "{}", old.stderr());
    egret.get("/").assert_generated(404, "unknown-provider");
}

/// Ends the listening of a socket that another process has as well.
const END_LISTENING: &str = "
import array, ctypes, errno, json, os, socket, struct, sys
hello = json.dumps({'hello': {'version': 1, 'pid': os.getpid()}}).encode()
numbers = array.array('i')
# Who takes longer than a second to introduce itself, as on a busy machine, is turned away.
while not numbers:
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(sys.argv[1])
    try:
        stream.sendall(struct.pack('>I', len(hello)) + hello)
        for _, _, data in stream.recvmsg(4096, socket.CMSG_SPACE(64 * 4))[1]:
            numbers.frombytes(data)
    except OSError:
        pass
assert ctypes.CDLL(None).connect(numbers[0], struct.pack('H14x', 0), 16) == 0
# It has hung up for good. As a client whose server has left it would also stay readable, but Linux 6.18
# makes no client of it.
server, client = socket.create_server(('127.0.0.1', 0)), socket.socket(fileno=numbers[0])
client.settimeout(20)
try:
    client.connect(server.getsockname())
    server.accept()[0].close()
except OSError as error:
    assert error.errno == errno.EINVAL, error
print(len(numbers))
";

#[test]
fn a_listener_that_listens_no_more_does_not_keep_a_worker_busy() {
    let egret = Config::default().gateway("workers: 1").start();
    let socket = egret.directory().join("egret-data/handover.sock");
    let mut taken = Command::new("python3");
    assert_eq!(run_checked(taken.args(["-c", END_LISTENING]).arg(&socket)), "2\n");
    let (began, before) = (Instant::now(), egret.process().runnable_times());
    pass(Duration::from_secs(2));
    let runnable = egret.process().longest_runnable(&before);
    let passed = began.elapsed();
    assert!(runnable < passed / 2, "a thread was ready to run for {runnable:?} of {passed:?}");
    let log = egret.log_with("accepts no clients any more");
    assert_eq!(log.matches("accepts no clients any more").count(), 1, "{log}");
}
