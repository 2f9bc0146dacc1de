"""The systemd units, as far as systemd's tools can judge them without running."""

import re

from support import PACKAGING, Scratch, run

SYSTEM = PACKAGING / "system"


class Units(Scratch):
    def test_the_exposure_of_the_service_is_at_most_1_2(self):
        printed = run("systemd-analyze", "security", "--offline=true", SYSTEM / "egret.service").stdout
        score = float(re.search(r"Overall exposure level for egret.service: ([0-9.]+)", printed)[1])
        self.assertLessEqual(score, 1.2)

    def test_systemd_finds_no_mistake_in_the_units(self):
        units = self.folder / "units"
        units.mkdir()
        for name in ("egret.service", "egret.socket"):
            text = (SYSTEM / name).read_text().replace("/usr/bin/egret", "/bin/true").replace("man:", "https://x/")
            (units / name).write_text(text)
        found = run("systemd-analyze", "verify", "--man=no", *units.iterdir(), check=False)
        own = [line for line in found.stderr.splitlines() if "egret" in line]
        self.assertEqual(own, [])

    def test_the_sockets_are_those_of_the_config(self):
        sockets = re.findall(r"ListenStream=(.*)", (SYSTEM / "egret.socket").read_text())
        config = (SYSTEM / "egret.yaml").read_text()
        self.assertEqual(sockets, re.findall(r"127\.0\.0\.1:[0-9]+", config.split("data_dir")[0]))

    def test_the_user_and_the_folder_are_made(self):
        root = self.folder / "root"
        (root / "etc").mkdir(parents=True)
        run("systemd-sysusers", f"--root={root}", SYSTEM / "sysusers.conf")
        self.assertIn("egret:", (root / "etc" / "passwd").read_text())
        run("systemd-tmpfiles", "--create", f"--root={root}", SYSTEM / "tmpfiles.conf")
        self.assertEqual((root / "etc" / "egret" / "secrets").stat().st_mode & 0o777, 0o750)
