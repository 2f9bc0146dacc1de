"""The binary: static, small, complete without any file of a system."""

import sys

from support import PACKAGING, PROCESSOR, Scratch, alone, run


class Binary(Scratch):
    def test_it_is_static_at_most_25_mib_and_position_independent_where_rust_can(self):
        binary = self.unpack() / "egret"
        self.assertLessEqual(binary.stat().st_size, 25 << 20)
        headers = run("readelf", "-lhd", binary).stdout
        # Rust links no such program statically with glibc for arm64.
        self.assertIn("DYN (Position-Independent" if PROCESSOR == "x86_64" else "Type:", headers)
        self.assertNotIn("INTERP", headers)
        self.assertNotIn("NEEDED", headers)

    def test_it_contains_no_path_of_the_machine_that_built_it(self):
        data = (self.unpack() / "egret").read_bytes()
        for path in (str(PACKAGING.parent), "/.cargo/registry", "/root/"):
            # `assertNotIn` would print the whole binary.
            self.assertFalse(path.encode() in data, path)

    def test_it_serves_dns_tls_and_a_calendar_quota_in_an_empty_root(self):
        binary = self.unpack() / "egret"
        root = self.folder / "root"
        root.mkdir()
        (root / "egret").write_bytes(binary.read_bytes())
        (root / "egret").chmod(0o755)
        script = PACKAGING / "tests" / "empty_root.py"
        printed = run(*alone(sys.executable, script, root)).stdout
        self.assertEqual(printed.splitlines(), ["200 forwarded", "200 forwarded", "429 quota-exceeded"])
