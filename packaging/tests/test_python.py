"""The Python wheel, installed into a fresh virtual environment without a network."""

import sys
import time
import venv

from support import DIST, INSTALL_S, PACKAGING, PROCESSOR, WHEEL, Scratch, alone, package, run

DEMO = PACKAGING / "tests" / "demo.py"


class Wheel(Scratch):
    def setUp(self):
        super().setUp()
        venv.create(self.folder / "venv", with_pip=True)
        self.bin = self.folder / "venv" / "bin"

    def test_the_demo_answers_within_10_s_of_the_install_command_and_drains(self):
        begin = time.monotonic()
        install = [self.bin / "pip", "install", "--quiet", "--no-index", "--find-links", DIST, "egret-gateway"]
        run(*alone(*install))
        printed = run(*alone(sys.executable, DEMO, self.bin / "egret-gateway", "run", "--demo")).stdout
        self.assertLessEqual(time.monotonic() - begin, INSTALL_S)
        self.assertEqual(printed.split(), ["answered", "0"])

    def test_both_commands_and_the_module_are_the_same_program_and_pass_exit_codes_on(self):
        run(self.bin / "pip", "install", "--quiet", "--no-index", package(WHEEL))
        for command in (["egret"], ["egret-gateway"], ["python", "-m", "egret_gateway"]):
            command[0] = self.bin / command[0]
            self.assertTrue(run(*command, "version").stdout.startswith("egret "))
            self.assertEqual(run(*command, "check", "/missing.yaml", check=False).returncode, 2)

    def test_uninstalling_leaves_nothing(self):
        before = {path for path in (self.folder / "venv").rglob("*") if "__pycache__" not in str(path)}
        run(self.bin / "pip", "install", "--quiet", "--no-index", package(WHEEL))
        run(self.bin / "pip", "uninstall", "--quiet", "--yes", "egret-gateway")
        after = {path for path in (self.folder / "venv").rglob("*") if "__pycache__" not in str(path)}
        self.assertEqual(after - before, set())

    def test_the_tags_name_only_this_processor(self):
        tags = package(WHEEL).stem.split("-")[-1].split(".")
        self.assertTrue(all(tag.endswith(f"_{PROCESSOR}") for tag in tags), tags)
