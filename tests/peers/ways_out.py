"""Tries every known way out of the network namespace of `egret exec --isolate`, from inside.

    ways_out.py SETTINGS

SETTINGS is a JSON object: what there is outside, each of which answers `outside`. Prints a line for each way: its
name, a tab, `out` or `refused`, a tab, and details. Standard library only.
"""

import array
import ctypes
import errno
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import time

SET = json.loads(sys.argv[1])
PORT, UDP = SET["tcp"], SET["udp"]
LIBC = ctypes.CDLL(None, use_errno=True)
PATIENCE = 20
WAYS = []


def way(name):
    def register(function):
        WAYS.append((name, function))
        return function
    return register


def proxy():
    host, port = os.environ["http_proxy"].removeprefix("http://").rsplit(":", 1)
    return host, int(port)


def system_call(*arguments):
    result = LIBC.syscall(*[ctypes.c_long(argument) for argument in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read_all(stream):
    response = b""
    while piece := stream.recv(4096):
        response += piece
    return response


def reaches(stream, address):
    """Connects and asks for the page that is outside."""
    stream.settimeout(PATIENCE)
    stream.connect(address)
    stream.sendall(b"GET / HTTP/1.1\r\nHost: outside\r\nConnection: close\r\n\r\n")
    return b"outside" in read_all(stream)


def tcp(address, family=socket.AF_INET, protocol=0):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as stream:
        return reaches(stream, address)


def udp(address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as packet:
        packet.settimeout(PATIENCE)
        packet.connect(address)
        packet.send(b"out")
        return b"outside" in packet.recv(100)


def connects(family, kind, address, protocol=0):
    """A socket that could be made, and whose connection is not refused for the lack of a network."""
    with socket.socket(family, kind, protocol) as stream:
        stream.settimeout(1)
        try:
            stream.connect(address)
        except OSError as error:
            # An answer of the other side is one from outside.
            return error.errno not in (errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.ENODEV)
        return True


def exchange(request, address=None):
    """Sends a request to the proxy, or where the address says."""
    with socket.create_connection(address or proxy(), timeout=PATIENCE) as stream:
        stream.sendall(request.encode())
        return read_all(stream)


def through(authority):
    """A tunnel through Egret. The page outside is asked for in it."""
    with socket.create_connection(proxy(), timeout=PATIENCE) as stream:
        stream.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        head = stream.recv(4096)
        if b" 200 " not in head.split(b"\r\n")[0]:
            return False
        stream.sendall(b"GET / HTTP/1.1\r\nHost: outside\r\nConnection: close\r\n\r\n")
        stream.shutdown(socket.SHUT_WR)
        # An open tunnel has left, whatever answers in it.
        return True


def forwarded(target, fields=""):
    response = exchange(f"GET {target} HTTP/1.1\r\nHost: {target.split('/')[2]}\r\n{fields}Connection: close\r\n\r\n")
    return b"outside" in response


def enter(path):
    """Changes to the network namespace of a file, and calls from there."""
    descriptor = os.open(path, os.O_RDONLY)
    if LIBC.setns(descriptor, 0x40000000) < 0:
        raise OSError(ctypes.get_errno(), "setns")
    return tcp(("127.0.0.1", PORT))


def own_address(family):
    return SET["addresses"].get("4" if family == socket.AF_INET else "6", "192.0.2.1" if family == socket.AF_INET else "2001:db8::1")


# Sockets of the Internet.
way("tcp_loopback")(lambda: tcp(("127.0.0.1", PORT)))
way("tcp_loopback_other")(lambda: tcp(("127.1.2.3", PORT)))
way("tcp_unspecified")(lambda: tcp(("0.0.0.0", PORT)))
way("tcp_loopback_6")(lambda: tcp(("::1", PORT), socket.AF_INET6))
way("tcp_mapped")(lambda: tcp(("::ffff:127.0.0.1", PORT), socket.AF_INET6))
way("tcp_own_address")(lambda: tcp((own_address(socket.AF_INET), PORT)))
way("tcp_own_address_6")(lambda: tcp((own_address(socket.AF_INET6), PORT), socket.AF_INET6))
way("tcp_mail")(lambda: tcp(("192.0.2.1", 25)))
way("tcp_metadata")(lambda: tcp(("169.254.169.254", 8080)))
way("tcp_control_port")(lambda: tcp(("127.0.0.1", SET["control"])))
way("mptcp_loopback")(lambda: tcp(("127.0.0.1", PORT), protocol=262))
way("sctp_loopback")(lambda: tcp(("127.0.0.1", PORT), protocol=132))
way("udp_loopback")(lambda: udp(("127.0.0.1", UDP)))
way("udp_own_address")(lambda: udp((own_address(socket.AF_INET), UDP)))
way("udp_quic")(lambda: udp(("192.0.2.1", 443)))
way("udp_quic_6")(lambda: udp(("2001:db8::1", 443), socket.AF_INET6))
way("udp_name_server")(lambda: b"outside" in ask(("127.0.0.1", UDP), "plain.test"))


@way("tcp_loopback_after_unspec")
def tcp_after_unspec():
    with socket.socket() as stream:
        stream.bind(("127.0.0.1", 0))
        stream.listen()
        LIBC.connect(stream.fileno(), struct.pack("H14x", 0), 16)
        return reaches(stream, ("127.0.0.1", PORT))


@way("raw_packets")
def raw_packets():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as packet:
        packet.settimeout(0.5)
        # An echo request; the answer of this namespace's own loopback is not from outside.
        packet.sendto(bytes([8, 0, 247, 253, 0, 1, 0, 1]), ("192.0.2.1", 0))
        return b"outside" in packet.recv(100)


# Sockets of other families.
way("vsock_host")(lambda: connects(40, socket.SOCK_STREAM, (2, PORT)))
way("vsock_local")(lambda: connects(40, socket.SOCK_STREAM, (1, PORT)))
way("vsock_datagrams")(lambda: bool(socket.socket(40, socket.SOCK_DGRAM)))
way("packet_sockets")(lambda: bool(socket.socket(socket.AF_PACKET, socket.SOCK_RAW)))
for name, family, kind in [
    ("bluetooth", 31, socket.SOCK_SEQPACKET), ("can", 29, socket.SOCK_RAW), ("tipc", 30, socket.SOCK_STREAM),
    ("rds", 21, socket.SOCK_SEQPACKET), ("xdp", 44, socket.SOCK_RAW), ("smc", 43, socket.SOCK_STREAM), ("kcm", 41, socket.SOCK_DGRAM),
    ("key", 15, socket.SOCK_RAW), ("alg", 38, socket.SOCK_SEQPACKET), ("x25", 9, socket.SOCK_SEQPACKET), ("nfc", 39, socket.SOCK_RAW),
    ("phonet", 35, socket.SOCK_DGRAM), ("ieee802154", 36, socket.SOCK_RAW), ("qipcrtr", 42, socket.SOCK_DGRAM), ("mctp", 45, socket.SOCK_DGRAM),
]:
    way(f"family_{name}")(lambda family=family, kind=kind: bool(socket.socket(family, kind)))
way("socketpair_tipc")(lambda: bool(socket.socketpair(30, socket.SOCK_STREAM)))


@way("io_uring")
def io_uring():
    """A ring makes sockets that no filter of system calls sees."""
    parameters = ctypes.create_string_buffer(256)
    return system_call(425, 1, ctypes.addressof(parameters)) >= 0


@way("other_abi")
def other_abi():
    """The call for a socket, by the number of another ABI of the same processor."""
    if os.uname().machine != "x86_64":
        return False
    return system_call(0x40000000 + 41, 40, socket.SOCK_STREAM, 0) >= 0


# Sockets in files, and their neighbours.
def unix(address):
    with socket.socket(socket.AF_UNIX) as stream:
        return reaches(stream, address)


way("unix_abstract")(lambda: unix("\0" + SET["abstract"]))
way("unix_file")(lambda: unix(SET["file"]))


def handed_over(stream):
    """Asks a running Egret for its listening sockets, and calls by one of them."""
    stream.settimeout(PATIENCE)
    stream.connect(SET["handover"])
    hello = json.dumps({"hello": {"version": 1, "pid": os.getpid()}}).encode()
    stream.sendall(struct.pack(">I", len(hello)) + hello)
    _, ancillary, _, _ = stream.recvmsg(4096, socket.CMSG_SPACE(64 * 4))
    numbers = array.array("i")
    for _, _, data in ancillary:
        numbers.frombytes(data)
    for number in numbers:
        taken = socket.socket(fileno=number)
        LIBC.connect(taken.fileno(), struct.pack("H14x", 0), 16)
        if reaches(taken, ("127.0.0.1", PORT)):
            return True
    return False


@way("handover_socket")
def handover_socket():
    with socket.socket(socket.AF_UNIX) as stream:
        return handed_over(stream)


@way("handover_socket_of_an_ended_process")
def handover_of_an_ended_process():
    """The process that has connected is gone, and its child speaks."""
    near, far = socket.socketpair()
    if os.fork() == 0:
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(SET["handover"])
        if os.fork() > 0:
            os._exit(0)
        result = b"refused"
        try:
            hello = json.dumps({"hello": {"version": 1, "pid": 1}}).encode()
            stream.settimeout(PATIENCE)
            stream.sendall(struct.pack(">I", len(hello)) + hello)
            _, ancillary, _, _ = stream.recvmsg(4096, socket.CMSG_SPACE(64 * 4))
            result = b"out" if ancillary else b"refused"
        except OSError:
            pass
        far.sendall(result)
        os._exit(0)
    far.close()
    os.wait()
    near.settimeout(PATIENCE)
    return near.recv(10) == b"out"


# Namespaces and processes.
for name, target in [("first_process", 1), ("outer_process", SET["outer"]), ("gateway", SET["gateway"])]:
    way(f"setns_{name}")(lambda target=target: enter(f"/proc/{target}/ns/net"))
    way(f"files_of_{name}")(lambda target=target: os.open(f"/proc/{target}/fd/0", os.O_RDONLY) >= 0)
    way(f"root_of_{name}")(lambda target=target: bool(os.listdir(f"/proc/{target}/root/")))
    way(f"memory_of_{name}")(lambda target=target: bool(open(f"/proc/{target}/mem", "rb")))
    way(f"ptrace_{name}")(lambda target=target: system_call(PTRACE, 0x4206, target, 0, 0) >= 0)
    way(f"descriptor_of_{name}")(lambda target=target: system_call(438, os.pidfd_open(target), 3, 0) >= 0)
PTRACE = 101 if os.uname().machine == "x86_64" else 117


@way("setns_by_process")
def setns_by_process():
    if LIBC.setns(os.pidfd_open(SET["outer"]), 0x40000000) < 0:
        raise OSError(ctypes.get_errno(), "setns")
    return tcp(("127.0.0.1", PORT))


def in_new(flags):
    """Calls from a further namespace."""
    if os.fork() == 0:
        try:
            if LIBC.unshare(flags) < 0:
                os._exit(1)
            os._exit(0 if tcp(("127.0.0.1", PORT)) else 1)
        except OSError:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.wait()[1]) == 0


way("new_network_namespace")(lambda: in_new(0x40000000))
way("new_user_and_network_namespace")(lambda: in_new(0x50000000))
way("nsenter")(lambda: subprocess.run(["nsenter", "-t", str(SET["outer"]), "-n", "true"], capture_output=True).returncode == 0)
way("interface_to_outside")(lambda: subprocess.run(
    ["ip", "link", "add", "out0", "type", "veth", "peer", "name", "out1", "netns", str(SET["outer"])], capture_output=True).returncode == 0)


@way("inherited_sockets")
def inherited_sockets():
    return any(os.readlink(f"/proc/self/fd/{name}").startswith("socket:") for name in os.listdir("/proc/self/fd") if int(name) > 2
               and os.path.islink(f"/proc/self/fd/{name}"))


way("signal_to_outer_process")(lambda: os.kill(SET["outer"], 0) is None)

# Through Egret.
for name, host in [
    ("loopback", "127.0.0.1"), ("loopback_other", "127.1.2.3"), ("name", "localhost"), ("loopback_6", "[::1]"), ("mapped", "[::ffff:127.0.0.1]"),
    ("compatible", "[::127.0.0.1]"), ("nat64", "[64:ff9b::7f00:1]"), ("6to4", "[2002:7f00:1::]"), ("unspecified", "0.0.0.0"),
    ("unspecified_6", "[::]"), ("short", "127.1"), ("number", "2130706433"), ("hexadecimal", "0x7f000001"), ("octal", "0177.0.0.1"),
    ("dot", "localhost."), ("rebound_name", "loopback.test"), ("own_address", own_address(socket.AF_INET)),
    ("own_address_6", f"[{own_address(socket.AF_INET6)}]"),
]:
    way(f"connect_{name}")(lambda host=host: through(f"{host}:{PORT}"))
for name, authority in [
    ("private", "10.0.0.1:443"), ("private_web", "192.168.1.1:80"), ("unique_local", "[fd12::1]:443"), ("link_local", "169.254.7.7:80"),
    ("link_local_6", "[fe80::1]:443"), ("metadata", "169.254.169.254:80"), ("metadata_name", "metadata.google.internal:80"),
    ("carrier", "100.64.0.1:443"), ("ssh", "198.51.100.1:22"), ("public_port", "8.8.8.8:53"), ("public_name_port", "api.example.com:8443"),
    ("rebound_web", "loopback.test:443"),
]:
    way(f"connect_{name}")(lambda authority=authority: through(authority))
way("connect_control_port")(lambda: through(f"127.0.0.1:{SET['control']}"))
way("connect_gateway_port")(lambda: through(f"127.0.0.1:{SET['listen']}"))
way("request_loopback")(lambda: forwarded(f"http://127.0.0.1:{PORT}/"))
way("request_rebound_name")(lambda: forwarded(f"http://loopback.test:{PORT}/"))
way("request_control_port")(lambda: forwarded(f"http://127.0.0.1:{SET['control']}/metrics"))
way("request_by_header")(lambda: forwarded("http://plain.test/", f"x-egret-host: 127.0.0.1:{PORT}\r\nx-egret-scheme: http\r\n"))
way("request_by_host")(lambda: b"outside" in exchange(
    f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\nConnection: close\r\n\r\n", ("192.0.2.1", 80)))


def by_server_name(name):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("192.0.2.1", 443), timeout=PATIENCE) as stream:
        try:
            with context.wrap_socket(stream, server_hostname=name):
                return True
        except ssl.SSLError as error:
            return "ACCESS_DENIED" not in str(error) and "EOF" not in str(error)


way("tls_name_of_loopback")(lambda: by_server_name("localhost"))
way("tls_rebound_name")(lambda: by_server_name("loopback.test"))
way("request_to_provider")(lambda: forwarded(f"http://127.0.0.1:{SET['provider']}/"))
way("connect_allowed")(lambda: through(f"127.0.0.1:{SET['allowed']}"))


def ask(server, host):
    name = b"".join(bytes([len(label)]) + label.encode() for label in host.split(".")) + b"\0"
    question = struct.pack(">6H", 77, 0x100, 1, 0, 0, 0) + name + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(PATIENCE)
        client.connect(server)
        client.send(question)
        return client.recv(600)


way("names")(lambda: ask(("192.0.2.1", 53), "plain.test")[3] & 15 == 0)


@way("config_that_allows_more")
def config_that_allows_more():
    """Writes a rule for itself into the config of its gateway, and has it read again."""
    config = open("egret.yaml").read()
    open("egret.yaml", "w").write(config.replace("allow: [", "allow: [{ net: 127.0.0.1, ports: [%d] }, " % PORT))
    log = f"egret-data/exec/{os.getpid()}.log"
    gateway = next(int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_own_gateway(pid))
    os.kill(gateway, 1)
    deadline = time.monotonic() + 3 * PATIENCE
    while time.monotonic() < deadline:
        text = open(log).read()
        if "keeps its config" in text or "config reloaded" in text:
            break
        time.sleep(0.01)
    return through(f"127.0.0.1:{PORT}")


def is_own_gateway(pid):
    try:
        words = open(f"/proc/{pid}/cmdline").read().split("\0")
        return "__serve-command" in words and os.path.join(os.getcwd(), "egret.yaml") in words
    except OSError:
        return False


for name, attempt in WAYS:
    try:
        result, details = ("out" if attempt() else "refused"), ""
    except Exception as error:
        result, details = "refused", f"{type(error).__name__}: {error}"
    print(name, result, details, sep="\t", flush=True)
