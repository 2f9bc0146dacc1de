"""The crates that are part of a binary, with their licences: for the bill of materials and for the notices."""

import json
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

# Files of a crate that contain a licence or a notice.
LICENCE_FILES = ("licen", "notice", "copying", "unlicense")


@dataclass(frozen=True, order=True)
class Crate:
    """A crate of the lock file."""

    name: str
    version: str
    licence: str
    folder: Path
    checksum: str | None

    def licence_texts(self):
        """Yields the texts of its licences and notices."""
        for path in sorted(self.folder.iterdir()):
            if path.is_file() and path.name.lower().startswith(LICENCE_FILES):
                yield path.read_text(encoding="utf-8", errors="replace").strip()


def output(root, *command):
    """Returns what a command prints."""
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def crates(root, target, features):
    """Returns the crates that `egret` is linked from, without those that only run while it is built."""
    tree = ["cargo", "tree", "--locked", "--offline", "--package", "egret", "--target", target, *features]
    tree += ["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]
    linked = {tuple(line.split()[:2]) for line in output(root, *tree).splitlines() if line}
    # A clean machine has no crates of other platforms.
    metadata = ["cargo", "metadata", "--locked", "--offline", "--filter-platform", target, "--format-version", "1"]
    metadata = json.loads(output(root, *metadata))
    locked = tomllib.loads(Path(root, "Cargo.lock").read_text())["package"]
    sums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    found = []
    for package in metadata["packages"]:
        key = (package["name"], package["version"])
        if (key[0], f"v{key[1]}") in linked:
            folder = Path(package["manifest_path"]).parent
            licence = package["license"] or f"see {package['license_file']}"
            found.append(Crate(*key, licence, folder, sums.get(key)))
    if len(found) != len(linked):
        raise SystemExit(f"cargo tree has {len(linked)} crates, cargo metadata {len(found)} of them")
    return sorted(found)


# Code in other languages that the crates compile into the binary, with the crate that carries it.
EMBEDDED = (
    ("aws-lc", "aws-lc-sys", "ISC AND (Apache-2.0 OR ISC) AND MIT"),
    ("mimalloc", "libmimalloc-sys", "MIT"),
    ("quickjs-ng", "rquickjs-sys", "MIT"),
)


def c_library(name, version, licence):
    """Returns the component for the C library, which is linked statically."""
    return {"type": "library", "name": name, "version": version, "licenses": [{"license": {"id": licence}}]}


def bill(name, version, moment, linked, libc):
    """Returns a bill of materials in CycloneDX 1.5. `libc` is the component for the C library."""
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:cargo/{crate.name}@{crate.version}",
            "name": crate.name,
            "version": crate.version,
            "purl": f"pkg:cargo/{crate.name}@{crate.version}",
            "licenses": [{"expression": crate.licence.replace("/", " OR ")}],
            **({"hashes": [{"alg": "SHA-256", "content": crate.checksum}]} if crate.checksum else {}),
        }
        for crate in linked
        if crate.name != "egret"
    ]
    versions = {crate.name: crate.version for crate in linked}
    for part, carrier, licence in EMBEDDED:
        if carrier in versions:
            components.append(
                {
                    "type": "library",
                    "name": part,
                    "version": f"as in {carrier} {versions[carrier]}",
                    "licenses": [{"expression": licence}],
                }
            )
    components.append(libc)
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": moment,
                "component": {
                    "type": "application",
                    "bom-ref": f"pkg:cargo/egret@{version}",
                    "name": name,
                    "version": version,
                    "licenses": [{"expression": "Apache-2.0"}],
                },
            },
            "components": components,
        },
        indent=1,
        sort_keys=True,
    )


def notices(linked):
    """Returns the notices of all crates: who wrote what under which licence, and each licence's text once."""
    lines = [
        "Egret is linked from these crates. Each line names a crate, its version and its licence;",
        "the texts of the licences follow, each with the crates that carry it.",
        "",
    ]
    by_text = {}
    for crate in linked:
        lines.append(f"{crate.name} {crate.version}: {crate.licence}")
        for text in crate.licence_texts():
            by_text.setdefault(text, []).append(crate.name)
    for text, names in sorted(by_text.items(), key=lambda item: item[1]):
        lines += ["", "=" * 80, ", ".join(dict.fromkeys(names)), "=" * 80, "", text]
    return "\n".join(lines) + "\n"
