"""Everything that Egret keeps in `data_dir`: makes some of each, and shows what a version finds of it.

    data_dir.py write EGRET FOLDER    runs a gateway in the folder, whose collector is away
    data_dir.py read EGRET FOLDER     runs one whose collector is there, and prints its findings as JSON
    data_dir.py again EGRET FOLDER    the same after `read`: nothing waits for the collector
    data_dir.py keep EGRET FILE       packs what `write` makes, for `written`

Expects a network of its own, as `support.alone` makes it. The response and the authority are valid for years; the quota's
window ends within a year.
"""

import http.client
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from support import get, run, until

LIMIT, SPENT = 10, 7
# The longest window that a quota can have.
WINDOW_DAYS = 366
CONFIG = f"""
gateway: {{ listen: [127.0.0.1:8000], workers: 1 }}
control: {{ listen: 127.0.0.1:8001 }}
data_dir: egret-data
providers:
  api: {{ url: "http://127.0.0.1:9000" }}
quotas:
  kept: {{ limit: {LIMIT}, kind: fixed, window: {WINDOW_DAYS}d, store: file }}
exporters:
  archive: {{ type: har, directory: har }}
  collector: {{ type: alf, transport: {{ http: "http://127.0.0.1:9001" }}, service_token: "${{env:EGRET_TOKEN}}" }}
flows:
  - {{ name: limited, match: {{ provider: api, path: "/anything/*" }}, remedies: [ {{ limit: {{ quota: kept }} }} ] }}
  - {{ name: cached, match: {{ provider: api, path: "/cache/*" }}, remedies: [ {{ cache: {{ disk: {{}} }} }} ] }}
  - {{ name: recorded, match: {{ provider: api, path: "/recorded" }}, diagnoses: [ {{ har: {{ export: archive }} }} ] }}
  - {{ name: sent, match: {{ provider: api, path: "/sent" }}, diagnoses: [ {{ har: {{ export: collector }} }} ] }}
  - {{ name: listed, match: {{ provider: api, path: "/status/*" }}, diagnoses: [ discovery: {{ keep: true }} ] }}
"""
CACHED = "/cache/2000000000"
RECORDED = "/recorded?key=a-value-with-a-pseudonym"
SENT, LISTED = 5, 3
ENVIRONMENT = {"EGRET_TOKEN": "token", "PATH": "/usr/bin:/bin"}


class Collector(http.server.BaseHTTPRequestHandler):
    """Counts the documents that it gets."""

    documents = 0

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).documents += len(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def call(path):
    """Returns the status of a call through the gateway, and its `Cache-Status`."""
    connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=10)
    connection.request("GET", f"/api{path}")
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers.get("cache-status", "")


class Gateway:
    """A gateway in a folder, and its provider."""

    def __init__(self, egret, folder):
        self.egret, self.folder = egret, folder
        Path(folder, "egret.yaml").write_text(CONFIG)

    def __enter__(self):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.folder}
        self.provider = subprocess.Popen([self.egret, "provider"], **quiet)
        with open(self.folder / "log", "w") as log:
            command = [self.egret, "run", "--config", "egret.yaml"]
            self.process = subprocess.Popen(command, env=ENVIRONMENT, cwd=self.folder, stdout=log, stderr=log)
        until("the provider answers", lambda: get(9000, "/get"))
        try:
            until("the gateway is ready", self.is_ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def is_ready(self):
        """Returns true if the gateway is ready, and has loaded the index of the cache, which it does beside serving."""
        log = (self.folder / "log").read_text()
        if self.process.poll() is not None:
            raise AssertionError(log)
        return (get(8001, "/readyz") or (0,))[0] == 200 and "the disk of a cache is open" in log

    def __exit__(self, *_):
        for process in (self.process, self.provider):
            process.terminate()
            process.wait()

    def authority(self):
        """Returns the certificate of the authority."""
        command = [self.egret, "ca", "export", "--config", "egret.yaml"]
        done = subprocess.run(command, env=ENVIRONMENT, cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout


def write(egret, folder):
    """Makes some of everything."""
    folder.mkdir(parents=True, exist_ok=True)
    gateway = Gateway(egret, folder)
    command = [egret, "ca", "init", "--config", "egret.yaml", "--host", "intercepted.example", "--days", "3650"]
    subprocess.run(command, env=ENVIRONMENT, cwd=folder, check=True, capture_output=True)
    with gateway:
        statuses = [call("/anything/a")[0] for _ in range(SPENT)] + [call(CACHED)[0]]
        call(RECORDED)
        statuses += [call("/status/204")[0] for _ in range(LISTED)]
        for _ in range(SENT):
            call("/sent")
        expected = [200] * (SPENT + 1) + [204] * LISTED
        if statuses != expected:
            raise AssertionError(f"{statuses} instead of {expected}")
    Path(folder, "window").write_text(str(window()))
    Path(folder, "authority.pem").write_text(gateway.authority())
    Path(folder, "pseudonym").write_text(pseudonym(folder))


def window():
    """Returns the number of the quota's window."""
    return int(time.time() // (WINDOW_DAYS * 86_400))


def keep(egret, file):
    """Packs what `write` makes, without files that contain the authorities of this machine."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(egret, folder)
        (folder / "log").unlink()
        for derived in ("bundle.pem", "ca.jks"):
            (folder / "egret-data" / "ca" / derived).unlink()
        run("tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C", folder, "-czf", file, ".")


def units_left(folder):
    """Returns the units that are left of the quota, after `write`."""
    return LIMIT - SPENT if int(Path(folder, "window").read_text()) == window() else LIMIT


def pseudonym(folder):
    """Returns the recorded value of the last call that has one."""
    archives = sorted(Path(folder, "har").glob("*.har"), key=lambda path: path.stat().st_mtime)
    entries = json.loads(archives[-1].read_text())["log"]["entries"]
    return entries[-1]["request"]["queryString"][0]["value"]


def read(egret, folder, waiting=SENT):
    """Returns what this version finds. Uses up the quota, and sends what waits."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 9001), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Gateway(egret, folder) as gateway:
        until("the collector has what waited", lambda: Collector.documents >= waiting)
        found = {
            "left": sum(call("/anything/a")[0] == 200 for _ in range(LIMIT)),
            "cached": "hit" in call(CACHED)[1],
            "authority": gateway.authority() == Path(folder, "authority.pem").read_text(),
            "documents": Collector.documents,
            "listed": listed(),
        }
        call(RECORDED)
    found["pseudonym"] = pseudonym(folder) == Path(folder, "pseudonym").read_text()
    return found


def listed():
    """Returns the number of calls in the inventory that is kept."""
    flows = json.loads(get(8001, "/api/v1/discovery")[1])["flows"]
    return sum(endpoint["count"] for flow in flows if flow["flow"] == "listed" for endpoint in flow["endpoints"])


if __name__ == "__main__":
    action, program, place = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    actions = {"write": write, "read": read, "again": lambda *where: read(*where, waiting=0), "keep": keep}
    result = actions[action](program, place)
    if result is not None:
        print(json.dumps(result))
