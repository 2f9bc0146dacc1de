"""The RPM package, judged by rpm; its files, and its installation into an empty root."""

from support import PACKAGING, Scratch, package, run
from support import RPM as PACKAGE


class Rpm(Scratch):
    def query(self, *arguments):
        return run("rpm", "--dbpath", self.folder / "db", *arguments).stdout

    def test_its_digests_are_right(self):
        self.assertIn("digests OK", self.query("--checksig", "--nosignature", package(PACKAGE)))

    def test_it_has_its_files_where_rpm_distributions_look(self):
        rpm = set(self.query("--query", "--package", "--list", package(PACKAGE)).split())
        for path in (
            "/usr/bin/egret",
            "/usr/lib/systemd/system/egret.service",
            "/usr/lib/systemd/system/egret.socket",
            "/usr/lib/sysusers.d/egret.conf",
            "/usr/share/man/man1/egret.1.gz",
            "/usr/share/man/man5/egret.yaml.5.gz",
            "/usr/share/zsh/site-functions/_egret",
            "/usr/share/licenses/egret/LICENSE",
        ):
            self.assertIn(path, rpm)

    def test_its_config_is_kept_on_upgrade(self):
        configs = self.query("--query", "--package", "--configfiles", package(PACKAGE)).split()
        self.assertEqual(configs, ["/etc/egret/egret.yaml"])
        flags = self.query("--query", "--package", "--queryformat", "[%{FILENAMES} %{FILEFLAGS:fflags}\\n]", package(PACKAGE))
        self.assertIn("/etc/egret/egret.yaml cn", flags)

    def test_it_installs_into_an_empty_root_and_goes_again(self):
        root = self.folder / "root"
        root.mkdir()
        self.query("--root", root, "--install", "--nodeps", "--noscripts", package(PACKAGE))
        self.assertTrue(run(root / "usr/bin/egret", "version").stdout.startswith("egret "))
        self.query("--root", root, "--erase", "--noscripts", "egret")
        self.assertFalse((root / "usr/bin/egret").exists())

    def test_its_scripts_are_valid(self):
        for script in sorted((PACKAGING / "rpm").iterdir()):
            run("sh", "-n", script)
