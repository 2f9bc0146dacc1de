"""The npm packages, installed into a fresh project without a network."""

import json
import sys
import time

from support import INSTALL_S, PACKAGING, PROCESSOR, Scratch, alone, package, run

DEMO = PACKAGING / "tests" / "demo.py"
# npm's name of this processor.
CPU = {"x86_64": "x64", "aarch64": "arm64"}[PROCESSOR]


class Npm(Scratch):
    def setUp(self):
        super().setUp()
        (self.folder / "package.json").write_text('{ "name": "project", "version": "1.0.0" }')

    def install(self):
        both = [package("egret-gateway-[0-9]*.tgz"), package(f"egret-gateway-linux-{CPU}-*.tgz")]
        run(*alone("npm", "install", "--offline", "--no-audit", "--no-fund", *both), cwd=self.folder)

    def test_the_demo_answers_within_10_s_of_the_install_command_and_drains(self):
        begin = time.monotonic()
        self.install()
        command = ["node_modules/.bin/egret-gateway", "run", "--demo"]
        printed = run(*alone(sys.executable, DEMO, *command), cwd=self.folder).stdout
        self.assertLessEqual(time.monotonic() - begin, INSTALL_S)
        self.assertEqual(printed.split(), ["answered", "0"])

    def test_npx_runs_it_and_passes_exit_codes_on(self):
        self.install()
        npx = ["npx", "--offline", "--no"]
        self.assertTrue(run(*npx, "egret-gateway", "version", cwd=self.folder).stdout.startswith("egret "))
        self.assertTrue(run(*npx, "egret", "version", cwd=self.folder).stdout.startswith("egret "))
        failed = run(*npx, "egret-gateway", "check", "/missing.yaml", check=False, cwd=self.folder)
        self.assertEqual(failed.returncode, 2)

    def test_another_platform_says_so(self):
        self.install()
        for carrier in (self.folder / "node_modules").glob("egret-gateway-linux-*"):
            carrier.rename(self.folder / "elsewhere")
        failed = run("node_modules/.bin/egret", "version", check=False, cwd=self.folder)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("egret-gateway has no binary for linux", failed.stderr)

    def test_the_package_of_a_platform_is_for_that_platform_only(self):
        self.install()
        for carrier in (self.folder / "node_modules").glob("egret-gateway-linux-*"):
            manifest = json.loads((carrier / "package.json").read_text())
            self.assertEqual((manifest["os"], manifest["cpu"]), (["linux"], [CPU]))
            self.assertNotIn("scripts", manifest)
