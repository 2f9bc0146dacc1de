//! `egret exec --isolate`: programs that know no proxy reach providers through Egret, and nothing else gets
//! out.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::Command;

use egret_tests::egret::binary;
use egret_tests::exec::{FREE_PORTS, NamedProvider, Place, has_namespaces, refused};
use egret_tests::process::{run, run_checked};

/// A program without a thought of proxies.
const CALL: &str = "
import os, socket, ssl, sys
for name in list(os.environ):
    if name.lower().endswith('_proxy'):
        del os.environ[name]
host, port = sys.argv[1], int(sys.argv[2])
stream = socket.create_connection((host, port), timeout=20)
if port == 443:
    stream = ssl.create_default_context().wrap_socket(stream, server_hostname=host)
stream.sendall(f'GET /direct HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n'.encode())
response = b''
while piece := stream.recv(4096):
    response += piece
print(response.split(b'\\r\\n\\r\\n', 1)[1].decode())
";

#[test]
fn a_program_that_knows_no_proxy_reaches_the_provider() {
    if !has_namespaces() {
        return;
    }
    let NamedProvider { origin, names, place, .. } = &NamedProvider::start();
    for (host, port) in [("origin.test", "443"), ("plain.test", "80")] {
        let mut exec = place.exec(["--isolate", "--intercept"], ["python3", "-c", CALL, host, port]);
        assert_eq!(run_checked(&mut exec), "GET /direct HTTP/1.1\n", "{host}");
        assert!(names.queries(host) >= 1, "{host} was looked up by Egret");
        place.until_gateways_gone();
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| !request.values("via").is_empty()), "{requests:?}");
}

#[test]
fn a_program_with_a_proxy_works_as_well() {
    if !has_namespaces() {
        return;
    }
    let NamedProvider { place, .. } = &NamedProvider::start();
    let script = "curl --silent --show-error --fail https://origin.test/a && curl --silent --show-error --fail http://plain.test/b";
    assert_eq!(place.sh(["--isolate", "--intercept"], script), "GET /a HTTP/1.1GET /b HTTP/1.1");
    // On loopback inside, programs reach each other.
    let local = "import socket\nlistener = socket.create_server(('127.0.0.1', 0))\n\
                 socket.create_connection(listener.getsockname())\nprint('local')";
    assert_eq!(run_checked(&mut place.exec(["--isolate"], ["python3", "-c", local])), "local\n");
}

#[test]
fn an_isolated_program_reaches_only_the_gateway() {
    if !has_namespaces() {
        return;
    }
    let NamedProvider { names, place, .. } = &NamedProvider::start();
    // Listeners outside, which a program without isolation reaches.
    let outside = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let datagrams = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    for socket in [&outside.local_addr().unwrap(), &datagrams.local_addr().unwrap()] {
        assert!(socket.port() > 1024);
    }
    outside.set_nonblocking(true).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let script = "
import errno, socket, sys
tcp, udp = int(sys.argv[1]), int(sys.argv[2])
def connected(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(20)
        return errno.errorcode.get(stream.connect_ex(address), 'connected')
def sent(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as packet:
        packet.settimeout(20)
        packet.connect(address)
        try:
            packet.send(b'out')
            packet.recv(100)
            return 'received'
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
print('loopback', connected(socket.AF_INET, ('127.0.0.1', tcp)), sent(socket.AF_INET, ('127.0.0.1', udp)))
print('mail', connected(socket.AF_INET, ('192.0.2.1', 25)))
print('database', connected(socket.AF_INET, ('10.0.0.1', 5432)))
print('metadata', connected(socket.AF_INET, ('169.254.169.254', 8080)))
print('quic', sent(socket.AF_INET, ('192.0.2.1', 443)))
print('v6', connected(socket.AF_INET6, ('2001:db8::1', 25)), sent(socket.AF_INET6, ('2001:db8::1', 443)))
print('interfaces', [name for _, name in socket.if_nameindex()])
";
    let (tcp, udp) = (outside.local_addr().unwrap().port(), datagrams.local_addr().unwrap().port());
    let mut exec = place.exec(["--isolate"], ["python3", "-c", script, &tcp.to_string(), &udp.to_string()]);
    let printed = run_checked(&mut exec);
    let refused = "loopback ECONNREFUSED ECONNREFUSED\nmail ECONNREFUSED\ndatabase ECONNREFUSED\nmetadata ECONNREFUSED\n\
                   quic ECONNREFUSED\nv6 ECONNREFUSED ECONNREFUSED\ninterfaces ['lo']\n";
    // Without IPv6, its addresses are unreachable.
    let unreachable = refused.replace("v6 ECONNREFUSED ECONNREFUSED", "v6 ENETUNREACH ENETUNREACH");
    assert!(printed == refused || printed == unreachable, "{printed}");
    assert!(outside.accept().is_err() && datagrams.recv(&mut [0; 10]).is_err(), "something got out");
    assert_eq!(names.queries("origin.test"), 0);
}

#[test]
fn names_are_resolved_under_the_policy() {
    if !has_namespaces() {
        return;
    }
    let NamedProvider { names, place, .. } = &NamedProvider::start();
    let script = "
import socket, struct, sys
def asked(host, server, kind, stream=False):
    name = b''.join(bytes([len(label)]) + label.encode() for label in host.split('.')) + b'\\0'
    question = struct.pack('>6H', 77, 0x100, 1, 0, 0, 0) + name + struct.pack('>2H', kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as client:
        client.settimeout(20)
        client.connect((server, 53))
        client.sendall(struct.pack('>H', len(question)) + question if stream else question)
        reply = client.recv(600)[2 if stream else 0:]
    code, answers = reply[3] & 15, struct.unpack('>H', reply[6:8])[0]
    return code, socket.inet_ntoa(reply[-4:]) if answers == 1 else answers
print(asked('origin.test', '8.8.8.8', 1), asked('origin.test', '127.0.0.53', 1, True))
print(asked('origin.test', '8.8.8.8', 28), asked('origin.test', '8.8.8.8', 16))
print(asked('missing.test', '8.8.8.8', 1), asked('denied.test', '8.8.8.8', 1))
print(socket.gethostbyname('origin.test'))
";
    let printed = run_checked(&mut place.exec(["--isolate"], ["python3", "-c", script]));
    assert_eq!(
        printed, "(0, '192.0.2.7') (0, '192.0.2.7')\n(0, 0) (0, 0)\n(3, 0) (5, 0)\n192.0.2.7\n",
        "code and answer"
    );
    assert_eq!(names.queries("denied.test"), 0, "a denied name reaches no name server");
}

#[test]
fn the_name_decides_and_not_the_address() {
    if !has_namespaces() {
        return;
    }
    let NamedProvider { origin, place, .. } = &NamedProvider::start();
    let script = "
import socket, ssl, sys
def outcome(address, name):
    try:
        stream = socket.create_connection((address, 443), timeout=20)
        stream = ssl.create_default_context().wrap_socket(stream, server_hostname=name)
        stream.sendall(b'GET /named HTTP/1.1\\r\\nHost: origin.test\\r\\nConnection: close\\r\\n\\r\\n')
        return stream.recv(4096).split(b'\\r\\n')[0].decode()
    except ssl.SSLError as error:
        return error.reason
    except OSError as error:
        return type(error).__name__
print(outcome('198.51.100.1', 'origin.test'))
print(outcome('192.0.2.7', 'denied.test'))
print(outcome('192.0.2.9', '192.0.2.9'))
";
    let printed = run_checked(&mut place.exec(["--isolate", "--intercept"], ["python3", "-c", script]));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "HTTP/1.1 200 OK", "{printed}");
    assert!(lines[1].contains("ACCESS_DENIED"), "{printed}");
    assert!(lines[2].contains("ACCESS_DENIED"), "{printed}");
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn the_process_is_the_same_user_and_a_job_as_before() {
    if !has_namespaces() {
        return;
    }
    let place = Place::new();
    let script = "id -u; id -g; echo $$; exit 3";
    let own = run_checked(Command::new("sh").args(["-c", "id -u; id -g"]));
    let output = run(&mut place.exec(["--isolate"], ["sh", "-c", script]));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(printed.starts_with(&own), "{printed}");
    let mark = place.sh(["--isolate"], "echo $EGRET_EXEC");
    assert!(mark.starts_with("isolated "), "{mark}");
    // An inner command is isolated already, and cannot ask for more.
    let egret = binary().display();
    let inner = format!("{egret} exec --config egret.yaml --isolate -- sh -c 'echo inner'");
    assert_eq!(place.sh(["--isolate"], &inner), "inner\n");
    let more = format!("{egret} exec --config egret.yaml --intercept=a.example -- true; echo $?");
    let output = run(&mut place.exec(["--isolate"], ["sh", "-c", &more]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "125\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("outer"), "{output:?}");
    // The mark alone isolates nobody.
    let mut forged = place.exec(["--isolate"], ["readlink", "/proc/self/ns/net"]);
    let inside = run_checked(forged.env("EGRET_EXEC", "isolated"));
    assert_ne!(inside.trim(), std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string());
    place.until_gateways_gone();
}

#[test]
fn where_namespaces_are_forbidden_the_command_does_not_run() {
    if !has_namespaces() {
        return;
    }
    let place = Place::new();
    // A namespace in which no further one is allowed.
    let script = format!(
        "echo 0 >/proc/sys/user/max_user_namespaces && exec {} exec --config egret.yaml --isolate -- touch ran",
        binary().display()
    );
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "sh", "-c", &script]);
    place.prepare(&mut shell);
    let message = refused(&mut shell, 125);
    assert!(message.contains("--isolate") && message.contains("user.max_user_namespaces"), "{message}");
    assert!(!place.directory.join("ran").exists());
    place.until_gateways_gone();
}

#[test]
fn ports_inside_are_not_those_outside() {
    if !has_namespaces() {
        return;
    }
    let place = Place::with(FREE_PORTS);
    let proxy = place.sh(["--isolate"], "echo $http_proxy");
    let address: SocketAddr = proxy.trim().strip_prefix("http://").unwrap().parse().unwrap();
    place.until_gateways_gone();
    // The same port is in use outside by now: by this listener, or by a program that has it already.
    let _other = TcpListener::bind(address);
    assert!(place.sh(["--isolate"], "echo $http_proxy").starts_with("http://127.0.0.1:"));
}
