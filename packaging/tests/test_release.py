"""What belongs to a release beside its packages: checksums, bill of materials, versions that agree."""

import json
import re
import tomllib

from support import DIST, PROCESSOR, ROOT, Scratch, package, run


class Release(Scratch):
    def test_the_checksums_are_those_of_all_files(self):
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=DIST)
        named = {line.split()[1] for line in (DIST / "SHA256SUMS").read_text().splitlines()}
        self.assertEqual(named | {"SHA256SUMS"}, {path.name for path in DIST.iterdir()})

    def test_the_bill_of_materials_has_every_crate_that_is_linked(self):
        bill = json.loads(package(f"egret-*-linux-{PROCESSOR}*.cdx.json").read_text())
        named = {(part["name"], part["version"]) for part in bill["components"] if "purl" in part}
        tree = ["cargo", "tree", "--locked", "--offline", "--package", "egret", "--edges", "normal,no-proc-macro"]
        printed = run(*tree, "--prefix", "none", "--format", "{p}", cwd=ROOT).stdout
        linked = {tuple(line.split()[:2]) for line in printed.splitlines() if line}
        linked = {(name, version.removeprefix("v")) for name, version in linked} - {("egret", self.version())}
        self.assertEqual(named, linked)
        self.assertTrue(all(part["licenses"] for part in bill["components"]))

    def test_every_crate_is_in_the_notices_with_the_text_of_its_licence(self):
        notices = (self.unpack() / "THIRD-PARTY-NOTICES").read_text()
        bill = json.loads(package(f"egret-*-linux-{PROCESSOR}*.cdx.json").read_text())
        for part in bill["components"]:
            if "purl" in part:
                self.assertIn(f"\n{part['name']} {part['version']}: ", notices)
        self.assertGreater(notices.count("=" * 80), 50)

    def test_the_versions_agree(self):
        version = self.version()
        self.assertEqual(re.search(r"^## ([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1], version)
        self.assertRegex(run(self.unpack() / "egret", "version").stdout, rf"^egret {version} \([0-9a-f]{{12}}, \w+-linux\)\n$")
        chart = (ROOT / "packaging" / "chart" / "Chart.yaml").read_text()
        self.assertEqual(re.search(r'^appVersion: "(.*)"', chart, re.M)[1], version)
        self.assertTrue(all(version in path.name for path in DIST.glob("egret[-_]*")))

    @staticmethod
    def version():
        return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
