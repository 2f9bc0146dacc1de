"""What the tests of packages share: where the packages are, commands, and a network of their own."""

import http.client
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
DIST = Path(os.environ.get("DIST", ROOT / "dist"))
# Of the packages in DIST, those for this processor are tested.
PROCESSOR = platform.machine()
DEBIAN_PROCESSOR = {"x86_64": "amd64", "aarch64": "arm64"}[PROCESSOR]
DEB, RPM, WHEEL = f"egret_*_{DEBIAN_PROCESSOR}.deb", f"egret-*.{PROCESSOR}.rpm", f"*_{PROCESSOR}.whl"
# Longer than anything takes on a busy machine.
PATIENCE_S = 60
# The time in which an installed package must answer its first request.
INSTALL_S = 10


def package(pattern):
    """Returns the only package with a name like this."""
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        raise AssertionError(f"{len(found)} files {pattern} in {DIST}: run `make package`")
    return found[0]


def run(*command, check=True, **options):
    """Runs a command and returns what it prints. A failure shows both streams."""
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def alone(*command):
    """Wraps a command, so that it runs in a network of its own, with a loopback and nothing else."""
    script = 'ip link set lo up && exec "$@"'
    return ["unshare", "--net", "sh", "-c", script, "sh", *(str(part) for part in command)]


def until(what, condition, patience_s=PATIENCE_S):
    """Waits until the condition returns something."""
    deadline = time.monotonic() + patience_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience_s} s: {what}")
        time.sleep(0.02)


def get(port, path, host="127.0.0.1"):
    """Returns status and body of a response, or None if nothing listens yet."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except OSError:
        return None
    finally:
        connection.close()


class Careful(unittest.TestCase):
    """A test that runs as root, and therefore shows that the machine's devices are unharmed after it."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.show_devices)

    def show_devices(self):
        for path in ("/dev/null", "/dev/zero", "/dev/urandom"):
            self.assertTrue(stat.S_ISCHR(os.stat(path).st_mode), f"{path} is no device any more")


class Scratch(Careful):
    """A test with a folder of its own."""

    def setUp(self):
        super().setUp()
        self.folder = Path(tempfile.mkdtemp(prefix="egret-package-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def unpack(self):
        """Unpacks the archive, and returns its folder."""
        run("tar", "-xf", package(f"egret-*-linux-{PROCESSOR}*.tar.gz"), "-C", self.folder)
        return next(self.folder.glob("egret-*"))
