"""What is measured: each way from the client to the origin is a class, with its config template beside in configs/."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cases import Case
from process import Process, wait_until

CONFIGS = Path(__file__).parent / "configs"
PLACEHOLDER = re.compile(r"@\{(\w+)\}")


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def render(name: str, directory: Path, **values: object) -> Path:
    """Fills in a template of configs/ and puts the result into `directory`."""
    values["directory"] = directory
    path = directory / name
    path.write_text(PLACEHOLDER.sub(lambda found: str(values[found[1]]), (CONFIGS / name).read_text()))
    return path


def nginx_user() -> str:
    """Workers of an nginx started by root would lose the right to read the run's directory."""
    return "user root;" if os.geteuid() == 0 else ""


def fetch(port: int, path: str) -> tuple[int, bytes]:
    """One plain GET; status 0 while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


@dataclass(frozen=True)
class Setup:
    """What a run has ready for its subjects."""

    case: Case
    directory: Path
    relay: Path
    egret: Path
    envoy: Path
    proxy_core: int
    load_core: int


class Origin:
    """nginx that answers at once, on the load's core; over TLS on a second port where the case asks for it."""

    def __init__(self, setup: Setup) -> None:
        self.port = free_port()
        self.tls_port = free_port()
        self.ca = setup.directory / "ca.pem"
        tls = ""
        if setup.case.origin_tls:
            certificate, key = setup.directory / "origin.pem", setup.directory / "origin.key"
            self._make_certificates(certificate, key)
            listen = f"listen 127.0.0.1:{self.tls_port} ssl backlog=4096;"
            tls = f"{listen} ssl_certificate {certificate}; ssl_certificate_key {key};"
        (setup.directory / "1m").write_bytes(bytes(1024 * 1024))
        body = "x" * 109
        config = render("origin.conf", setup.directory, user=nginx_user(), port=self.port, tls=tls, body=body)
        command = ["nginx", "-p", str(setup.directory), "-c", str(config)]
        self.process = Process("origin", command, setup.load_core, setup.directory)
        wait_until("answering", lambda: fetch(self.port, "/")[0] == 200, self.process)

    def connections(self) -> int:
        """Connections accepted so far, by nginx's own count."""
        _, text = fetch(self.port, "/status")
        return int(text.split(b"requests")[1].split()[0])

    def _make_certificates(self, certificate: Path, key: Path) -> None:
        """An authority and a certificate that it issued: not all take one that is both."""
        ca_key = self.ca.with_suffix(".key")
        self._openssl(self.ca, ca_key, "/CN=footprint", ["basicConstraints=critical,CA:TRUE"])
        names = ["subjectAltName=IP:127.0.0.1,DNS:origin", "basicConstraints=critical,CA:FALSE"]
        self._openssl(certificate, key, "/CN=origin", names, "-CA", str(self.ca), "-CAkey", str(ca_key))

    @staticmethod
    def _openssl(certificate: Path, key: Path, subject: str, extensions: list[str], *issuer: str) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        files = ["-days", "2", "-keyout", str(key), "-out", str(certificate), "-subj", subject]
        added = [word for extension in extensions for word in ("-addext", extension)]
        subprocess.run([*command, *files, *added, *issuer], check=True, capture_output=True)


class Subject(ABC):
    """A way from the client to the origin."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, setup: Setup, origin: Origin) -> None:
        self.setup = setup
        self.origin = origin
        self.port = free_port()

    def missing(self) -> str | None:
        """Why it cannot take part, or None."""
        found = shutil.which(self.program())
        return None if found else f"{self.program()} is not there"

    def version(self) -> str:
        """What the program says of itself, in one line."""
        done = subprocess.run(self.version_command(), capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[0] if lines else "unknown"

    def start(self) -> Process | None:
        """Starts it on the proxies' core and waits until it carries a request. None where there is no proxy."""
        process = Process(self.name, self.command(), self.setup.proxy_core, self.setup.directory)
        try:
            wait_until("answering", lambda: fetch(self.port, "/")[0] == 200, process)
            self.check_answer()
        except BaseException:
            process.stop()
            raise
        return process

    def check_answer(self) -> None:
        """Raises unless the case's answer comes through whole."""
        case = self.setup.case
        status, body = fetch(self.port, case.path)
        if status != 200 or len(body) != case.response_bytes:
            raise RuntimeError(f"{self.title} answered {status} with {len(body)} bytes to GET {case.path}")

    @property
    def scheme(self) -> str:
        """How proxies speak to the origin."""
        return "https" if self.setup.case.origin_tls else "http"

    @property
    def origin_port(self) -> int:
        """Where proxies reach the origin."""
        return self.origin.tls_port if self.setup.case.origin_tls else self.origin.port

    def configure(self, name: str, *, tls: str, **values: object) -> str:
        """Renders its template; `tls` is what it takes to check the origin's certificate, left out where TLS is."""
        text = tls if self.setup.case.origin_tls else ""
        paths = {"port": self.port, "origin_port": self.origin_port, "scheme": self.scheme}
        return str(render(name, self.setup.directory, tls=text, **paths, **values))

    @abstractmethod
    def program(self) -> str:
        """The program's name or path."""

    @abstractmethod
    def version_command(self) -> list[str]:
        """What prints its version."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it, in the foreground."""


class Relay(Subject):
    """Copies bytes and knows no HTTP: the floor."""

    name = "relay"
    title = "byte relay"

    def missing(self) -> str | None:
        if self.setup.case.origin_tls:
            return "a byte relay speaks no TLS"
        return super().missing()

    def program(self) -> str:
        return str(self.setup.relay)

    def version_command(self) -> list[str]:
        return ["cc", "--version"]

    def command(self) -> list[str]:
        return [self.program(), str(self.port), str(self.origin.port)]


class Nginx(Subject):
    """nginx with HTTP/1.1 and kept connections to the origin, which are not its defaults."""

    name = "nginx"
    title = "nginx"

    def program(self) -> str:
        return "nginx"

    def version_command(self) -> list[str]:
        return ["nginx", "-v"]

    def command(self) -> list[str]:
        verify = f"proxy_ssl_verify on; proxy_ssl_trusted_certificate {self.origin.ca}; proxy_ssl_name origin;"
        config = self.configure("nginx.conf", tls=verify, user=nginx_user())
        return ["nginx", "-p", str(self.setup.directory), "-c", config]


class Haproxy(Subject):
    """HAProxy with one thread."""

    name = "haproxy"
    title = "HAProxy"

    def program(self) -> str:
        return "haproxy"

    def version_command(self) -> list[str]:
        return ["haproxy", "-v"]

    def command(self) -> list[str]:
        verify = f"ssl verify required ca-file {self.origin.ca} verifyhost origin"
        return ["haproxy", "-q", "-db", "-f", self.configure("haproxy.cfg", tls=verify)]


class Envoy(Subject):
    """Envoy with one worker."""

    name = "envoy"
    title = "Envoy"

    def program(self) -> str:
        return str(self.setup.envoy)

    def version_command(self) -> list[str]:
        return [self.program(), "--version"]

    def command(self) -> list[str]:
        verify = (
            "transport_socket: { name: envoy.transport_sockets.tls, typed_config: { "
            '"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, '
            "common_tls_context: { validation_context: { "
            f'trusted_ca: {{ filename: "{self.origin.ca}" }}, '
            "match_typed_subject_alt_names: [{ san_type: DNS, matcher: { exact: origin } }] } } } }"
        )
        options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
        return [self.program(), "-c", self.configure("envoy.yaml", tls=verify), *options]


class Egret(Subject):
    """Egret with one worker and a listener for the origin."""

    name = "egret"
    title = "Egret"

    def program(self) -> str:
        return str(self.setup.egret)

    def version_command(self) -> list[str]:
        return [self.program(), "version"]

    def command(self) -> list[str]:
        verify = f"tls: {{ ca: {self.origin.ca} }}"
        config = self.configure("egret.yaml", tls=verify, control_port=free_port())
        return [self.program(), "run", "--config", config]


class Direct(Subject):
    """No proxy at all: what everything else is held against."""

    name = "direct"
    title = "direct"

    def __init__(self, setup: Setup, origin: Origin) -> None:
        super().__init__(setup, origin)
        self.port = origin.port

    def start(self) -> Process | None:
        self.check_answer()
        return None

    def program(self) -> str:
        return "nginx"

    def version_command(self) -> list[str]:
        return ["nginx", "-v"]

    def command(self) -> list[str]:
        return []


SUBJECTS: list[type[Subject]] = [Direct, Relay, Nginx, Haproxy, Envoy, Egret]
