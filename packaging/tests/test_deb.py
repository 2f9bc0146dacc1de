"""The Debian package: judged by lintian; installed, upgraded, removed and purged in a fresh Debian."""

import os
from pathlib import Path

from fresh_debian import FreshDebian
from support import DEB as PACKAGE
from support import PACKAGING, Careful, Scratch, package, run

OVERRIDES = PACKAGING / "deb" / "lintian-overrides"


class Deb(Scratch):
    def test_lintian_finds_nothing_but_what_the_overrides_explain(self):
        found = run("lintian", "--allow-root", "--tag-display-limit", "0", package(PACKAGE), check=False)
        self.assertEqual((found.returncode, found.stdout), (0, ""), found.stderr)

    def test_every_override_has_a_reason(self):
        lines = OVERRIDES.read_text().splitlines()
        for number, line in enumerate(lines):
            if not line.startswith("#"):
                self.assertTrue(number > 0 and lines[number - 1].startswith("#"), line)

    def test_the_config_is_kept_on_upgrade(self):
        self.assertEqual(run("dpkg-deb", "--info", package(PACKAGE), "conffiles").stdout.split(), ["/etc/egret/egret.yaml"])


class Installation(Careful):
    """One Debian for all steps, since each follows from the one before it."""

    @classmethod
    def setUpClass(cls):
        cls.debian = FreshDebian("init-system-helpers,systemd")
        cls.addClassCleanup(cls.debian.remove)
        cls.root, cls.inside, cls.install = cls.debian.root, cls.debian.inside, cls.debian.install

    def test_install_upgrade_remove_and_purge(self):
        self.install(self.older())
        self.assertEqual(self.version(), "0.0.1")
        self.assertEqual(self.inside("egret", "check", "/etc/egret/egret.yaml").returncode, 0)
        self.assertIn("egret:", self.inside("getent", "passwd", "egret").stdout)
        self.assertEqual((self.root / "etc/egret/secrets").stat().st_mode & 0o777, 0o750)
        self.assertEqual(self.enabled(), [], "installing enables a unit")
        self.assertEqual(self.processes(), [], "installing starts a process")

        config, state = self.root / "etc/egret/egret.yaml", self.root / "var/lib/egret/quotas.redb"
        config.write_text(config.read_text() + "# a change of the administrator\n")
        state.parent.mkdir(exist_ok=True)
        state.write_text("state")
        self.install(package(PACKAGE))
        self.assertEqual(self.version(), package(PACKAGE).name.split("_")[1].rsplit("-", 1)[0])
        self.assertIn("a change of the administrator", config.read_text())
        self.assertEqual((self.enabled(), self.processes()), ([], []), "upgrading starts something")

        self.inside("dpkg", "--remove", "egret")
        self.assertFalse((self.root / "usr/bin/egret").exists())
        self.assertTrue(config.exists() and state.exists(), "removing deletes config or state")
        self.inside("dpkg", "--purge", "egret")
        for left in ("etc/egret", "var/lib/egret", "usr/share/doc/egret", "usr/lib/systemd/system/egret.service"):
            self.assertFalse((self.root / left).exists(), left)

    def older(self):
        """Returns the same package as if it were an older version."""
        unpacked = self.debian.folder / "older"
        run("dpkg-deb", "--raw-extract", package(PACKAGE), unpacked)
        control = unpacked / "DEBIAN" / "control"
        lines = control.read_text().splitlines()
        older = ["Version: 0.0.1-1" if line.startswith("Version:") else line for line in lines]
        control.write_text("\n".join(older) + "\n")
        run("dpkg-deb", "--build", unpacked, self.debian.folder / "older.deb")
        return self.debian.folder / "older.deb"

    def version(self):
        done = self.inside("dpkg-query", "--show", "--showformat", "${Version}", "egret")
        return done.stdout.rsplit("-", 1)[0]

    def enabled(self):
        return [path for path in (self.root / "etc/systemd").rglob("egret*") if path.is_symlink()]

    def processes(self):
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if Path(os.readlink(process / "exe")).is_relative_to(self.root):
                    found.append(process.name)
            except OSError:
                continue
        return found
