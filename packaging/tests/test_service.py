"""The service of the Debian package under a real systemd, which runs as process 1 of a fresh Debian.

All settings of the unit are in force, apart from PrivateDevices: the sandboxes that tests run in do not let systemd make
devices.
"""

import os
import subprocess
import threading
import time
from pathlib import Path

from fresh_debian import FreshDebian
from support import DEB, PACKAGING, Careful, package, run, until

CONFIG = "etc/egret/egret.yaml"
# A busy machine boots slowly.
BOOT_S = 180
DROP_IN = "etc/systemd/system/egret.service.d/test.conf"


class Service(Careful):
    @classmethod
    def setUpClass(cls):
        cls.debian = FreshDebian("init-system-helpers,systemd,systemd-sysv,dbus,curl")
        cls.addClassCleanup(cls.debian.remove)
        cls.debian.install(package(DEB))
        (cls.debian.root / DROP_IN).parent.mkdir(parents=True)
        (cls.debian.root / DROP_IN).write_text("[Service]\nPrivateDevices=no\nWatchdogSec=3\nRestartSec=100ms\n")
        log = open(cls.debian.folder / "boot.log", "w")  # noqa: SIM115 (closed below)
        cls.machine = subprocess.Popen([PACKAGING / "tests" / "boot", cls.debian.root], stdout=log, stderr=log)
        log.close()
        cls.addClassCleanup(cls.remove_groups)
        cls.addClassCleanup(cls.machine.wait)
        cls.addClassCleanup(cls.machine.kill)
        cls.first = until("process 1 runs", cls.child)
        try:
            until("the system runs", lambda: cls.state() == "running", BOOT_S)
        except AssertionError as waited:
            units = cls.on("systemctl", "--no-pager", "list-units", "--state=failed,activating", check=False)
            boot = (cls.debian.folder / "boot.log").read_text()
            raise AssertionError(f"{waited}: {cls.state()}\n{units.stdout}{units.stderr}{boot}") from waited
        # Something to call: a gateway never calls its own ports.
        cls.on("systemd-run", "--quiet", "--unit=provider", "/usr/bin/egret", "provider")

    @classmethod
    def remove_groups(cls):
        """Removes the control groups that `boot` and its systemd have made, once their last process has ended."""
        for hierarchy in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd"):
            group = f"{hierarchy}/egret-package-{cls.machine.pid}"
            until(f"{group} is removed", lambda group=group: cls.is_removed(group))

    @staticmethod
    def is_removed(group):
        for folder in run("find", group, "-depth", "-type", "d", check=False).stdout.split():
            try:
                os.rmdir(folder)
            except OSError:
                return False
        return True

    @classmethod
    def state(cls):
        return cls.on("systemctl", "is-system-running", check=False).stdout.strip()

    @classmethod
    def child(cls):
        """Returns the process that becomes systemd. Before that, `boot` has other children."""
        boot = Path(f"/proc/{cls.machine.pid}")
        children = (boot / "task" / str(cls.machine.pid) / "children").read_text().split()
        return children[0] if children and (boot / "comm").read_text() == "unshare\n" else None

    @classmethod
    def on(cls, *command, **options):
        """Runs a command on the booted system."""
        spaces = ["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--root", "--wd"]
        return run("nsenter", "--target", cls.first, *spaces, *command, **options)

    def setUp(self):
        super().setUp()
        self.config = self.debian.root / CONFIG
        self.good = self.config.read_text()
        self.on("systemctl", "start", "egret.service")
        self.addCleanup(self.on, "systemctl", "stop", "egret.socket", "egret.service")

    def shown(self, name):
        return self.on("systemctl", "show", "egret.service", "--property", name, "--value").stdout.strip()

    def get(self, path):
        """Returns the status that the gateway's or the control port's URL has."""
        write = ["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"]
        return self.on("curl", *write, f"http://127.0.0.1{path}", check=False).stdout

    def test_start_ends_once_egret_listens_and_stop_once_it_has_drained(self):
        self.assertEqual((self.shown("StatusText"), self.get(":8001/readyz")), ("Serving", "200"))
        user = self.on("stat", "--format", "%U", f"/proc/{self.shown('MainPID')}").stdout.strip()
        self.assertEqual(user, "egret")
        self.on("systemctl", "stop", "egret.service")
        self.assertEqual((self.shown("Result"), self.shown("ExecMainStatus")), ("success", "0"))

    def test_nothing_that_the_unit_forbids_is_missed(self):
        self.on("systemctl", "stop", "egret.service")
        self.config.write_text(
            self.good
            + "exporters: { archive: { type: har, directory: /var/lib/egret/har } }\n"
            + "providers: { api: { url: 'http://127.0.0.1:9000' } }\n"
            + "flows: [{ name: all, match: { provider: api }, diagnoses: [{ har: { export: archive } }] }]\n"
        )
        self.addCleanup(self.config.write_text, self.good)
        self.on("systemctl", "start", "egret.service")
        self.assertEqual(self.get(":8000/api/get"), "200")
        invocation = self.shown("InvocationID")
        log = self.on("journalctl", "--no-pager", f"_SYSTEMD_INVOCATION_ID={invocation}").stdout
        self.assertIn("gateway listening", log)
        self.assertNotRegex(log, r"WARN|ERROR")

    def test_reload_ends_once_the_config_is_in_effect_and_refuses_a_bad_one(self):
        self.addCleanup(self.config.write_text, self.good)
        self.config.write_text(self.good + "providers: { own: { url: 'http://127.0.0.1:9000' } }\n")
        self.on("systemctl", "reload", "egret.service")
        self.assertEqual((self.shown("StatusText"), self.get(":8000/own/get")), ("Serving", "200"))
        self.config.write_text("gateway: { no_such_key: 1 }\n")
        self.assertNotEqual(self.on("systemctl", "reload", "egret.service", check=False).returncode, 0)
        self.assertEqual(self.get(":8000/own/get"), "200")

    def test_a_process_that_does_not_respond_is_replaced(self):
        before = self.shown("MainPID")
        self.on("sh", "-c", f"kill -STOP {before}")
        until("systemd has started another process", lambda: self.shown("MainPID") not in (before, "0"))
        until("it serves", lambda: self.get(":8001/readyz") == "200")
        self.assertGreaterEqual(int(self.shown("NRestarts")), 1)

    def test_a_watchdog_that_is_fed_leaves_the_process_alone(self):
        before = self.shown("MainPID")
        fed = self.shown("WatchdogTimestampMonotonic")
        until("the watchdog is fed again", lambda: self.shown("WatchdogTimestampMonotonic") != fed)
        time.sleep(4)  # longer than its period
        self.assertEqual((self.shown("MainPID"), self.shown("NRestarts")), (before, "0"))

    def test_a_restart_behind_the_socket_refuses_no_connection(self):
        self.on("systemctl", "stop", "egret.service")
        self.on("systemctl", "start", "egret.socket", "egret.service")
        script = (
            "for n in $(seq 400); do curl --silent --max-time 20 --output /dev/null --write-out '%{http_code}\\n' "
            "http://127.0.0.1:8000/none || echo refused; done"
        )
        answers = []
        client = threading.Thread(target=lambda: answers.append(self.on("sh", "-c", script).stdout))
        before = self.shown("MainPID")
        client.start()
        for _ in range(3):
            self.on("systemctl", "restart", "egret.service")
        client.join()
        self.assertNotEqual(self.shown("MainPID"), before)
        codes = answers[0].split()
        self.assertEqual((len(codes), set(codes)), (400, {"404"}))
