//! Attacks from inside of `egret exec`: a command that leaves its network namespace, or reads secrets.

use std::net::TcpListener;

use egret_tests::egret::Config;
use egret_tests::exec::{FREE_PORTS, Place, has_namespaces};
use egret_tests::process::run_checked;

/// Introduces itself on the socket for a hand-over, and prints how many sockets it is sent.
const TAKE: &str = "
import array, json, os, socket, struct, sys
stream = socket.socket(socket.AF_UNIX)
stream.settimeout(20)
stream.connect(sys.argv[1])
hello = json.dumps({'hello': {'version': 1, 'pid': os.getpid()}}).encode()
numbers = array.array('i')
try:
    stream.sendall(struct.pack('>I', len(hello)) + hello)
    for _, _, data in stream.recvmsg(4096, socket.CMSG_SPACE(64 * 4))[1]:
        numbers.frombytes(data)
except OSError:
    pass
print(len(numbers))
";

#[test]
fn an_isolated_command_is_not_handed_sockets_of_the_outer_network() {
    if !has_namespaces() {
        return;
    }
    let egret = Config::default().start();
    let socket = egret.directory().join("egret-data/handover.sock");
    let place = Place::new();
    let mut taken = place.exec(["--isolate"], ["python3", "-c", TAKE, socket.to_str().unwrap()]);
    assert_eq!(run_checked(&mut taken), "0\n");
    egret.until_logged("another net namespace");
    egret.get("/").assert_generated(404, "unknown-provider");
}

#[test]
fn loopback_is_out_of_reach_of_an_isolated_command() {
    if !has_namespaces() {
        return;
    }
    let other = Config::default().start();
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    for port in [outside.local_addr().unwrap().port(), other.control().port()] {
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
            let script = format!(
                "curl --silent --proxytunnel --max-time 20 --output /dev/null --write-out '%{{http_connect}}' http://{host}:{port}/ \
                 --proxy \"$http_proxy\" --noproxy ''; true"
            );
            assert_eq!(place.sh(["--isolate"], &script), "403", "{host}:{port}");
        }
    }
}

#[test]
fn an_isolated_command_cannot_allow_itself_more_in_the_config() {
    if !has_namespaces() {
        return;
    }
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let config =
        format!("gateway: {{ listen: ['127.0.0.1:0'], egress: {{ deny: [{{ ports: [{port}] }}] }} }}\n");
    let place = Place::with(&(config + "control: { listen: 127.0.0.1:0 }\n"));
    // The gateway's log has the name of the process, and tells when it has looked at the file again.
    let script = format!(
        "printf \"gateway: {{ listen: ['127.0.0.1:0'], egress: {{ allow: [{{ net: 127.0.0.1, ports: [{port}] }}] }} }}\\n\
         control: {{ listen: 127.0.0.1:0 }}\\n\" >egret.yaml
         kill -HUP $(grep -lz __serve-command /proc/[0-9]*/cmdline 2>/dev/null | while read file; do
             tr '\\0' ' ' <$file | grep -q \"$PWD/egret.yaml\" && echo $file | cut -d/ -f3; done)
         tail -n +1 --follow --pid=$$ egret-data/exec/$$.log | grep -m1 -q -e 'keeps its config' -e 'config reloaded'
         curl --silent --proxytunnel --max-time 20 --output /dev/null --write-out '%{{http_connect}}' http://127.0.0.1:{port}/ \
             --proxy \"$http_proxy\" --noproxy ''; true"
    );
    let mut exec = egret_tests::egret::egret(["exec", "--isolate", "--config"]);
    exec.arg(place.directory.join("egret.yaml")).args(["--", "sh", "-c", &script]);
    place.prepare(&mut exec);
    assert_eq!(run_checked(&mut exec), "403");
}

#[test]
fn sockets_that_know_no_network_namespace_are_refused() {
    if !has_namespaces() {
        return;
    }
    let script = "
import errno, socket
def made(family, kind):
    try:
        socket.socket(family, kind)
        return 'made'
    except OSError as error:
        return errno.errorcode[error.errno]
print(made(40, socket.SOCK_STREAM), made(38, socket.SOCK_SEQPACKET), made(17, socket.SOCK_RAW), made(16, socket.SOCK_RAW))
";
    let printed = run_checked(&mut Place::new().exec(["--isolate"], ["python3", "-c", script]));
    assert_eq!(printed, "EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT made\n", "VSOCK, ALG, PACKET, NETLINK");
}

#[test]
fn variables_with_secrets_are_not_the_commands() {
    let place = Place::with(&format!(
        "{FREE_PORTS}providers: {{ api: {{ url: 'https://api.example.com' }} }}
accounts:
  main: {{ provider: api, bearer: {{ token: '${{env:ACCOUNT_KEY}}' }} }}
flows:
  - name: all
    match: {{ path: '${{env:A_PATH}}' }}
    remedies: [transform: {{ request: {{ headers: {{ set: {{ x-key: '${{env:TEMPLATE_KEY}}' }} }} }} }}]
"
    ));
    let mut exec =
        place.exec([], ["sh", "-c", "echo ${ACCOUNT_KEY-none} ${TEMPLATE_KEY-none} $A_PATH $OTHER"]);
    exec.envs([("ACCOUNT_KEY", "k1"), ("TEMPLATE_KEY", "k2"), ("A_PATH", "/a"), ("OTHER", "o")]);
    assert_eq!(run_checked(&mut exec), "none none /a o\n");
}

/// Java takes the last of two values. A user who sets the option in a command has decided.
#[test]
fn options_of_java_that_the_user_sets_inside_stay() {
    let place = Place::new();
    let egret = egret_tests::egret::binary().display();
    let inner = format!(
        "JAVA_TOOL_OPTIONS='-Dhttp.proxyHost=mine -Xmx1g' {egret} exec --config egret.yaml -- printenv JAVA_TOOL_OPTIONS
         JAVA_TOOL_OPTIONS=\"-Dhttp.proxyPort=7 $JAVA_TOOL_OPTIONS\" {egret} exec --config egret.yaml -- printenv JAVA_TOOL_OPTIONS"
    );
    let printed = place.sh([], &inner);
    let [replaced, prefixed] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert!(replaced.starts_with("-Dhttp.proxyHost=mine -Xmx1g -Dhttp.proxyPort="), "{replaced}");
    assert_eq!(replaced.matches("-Dhttp.proxyHost=").count(), 1, "{replaced}");
    assert!(prefixed.starts_with("-Dhttp.proxyPort=7 "), "{prefixed}");
    assert_eq!(prefixed.matches("-Dhttp.proxyPort=").count(), 1, "{prefixed}");
}
