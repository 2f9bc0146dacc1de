"""The npm packages: `egret-gateway`, which everybody installs, and one for each platform, with the binary."""

import json
from pathlib import Path

from archives import Tree, compressed, tar

# npm's names of processors.
CPUS = {"x86_64": "x64", "aarch64": "arm64"}


def main(packaging, version, processors, texts):
    """Returns the name and the bytes of the package that everybody installs. It names those of the release's processors."""
    manifest = {
        "name": "egret-gateway",
        **shared(version),
        "description": "A gateway for calls to third-party APIs: rate limits, retries, caching, keys, recordings",
        "keywords": ["api", "gateway", "proxy", "egress", "rate-limit", "retry", "har"],
        "bin": {"egret": "egret.js", "egret-gateway": "egret.js"},
        "files": ["egret.js"],
        "engines": {"node": ">=18"},
        "optionalDependencies": {f"egret-gateway-linux-{CPUS[processor]}": version for processor in processors},
    }
    folder = Path(packaging, "npm")
    files = {"egret.js": (Path(folder, "egret.js"), 0o755), "README.md": (Path(folder, "README.md"), 0o644)}
    return package(manifest, files, texts)


def carrier(version, arch, binary, texts):
    """Returns the name and the bytes of the package with the binary for a processor."""
    manifest = {
        "name": f"egret-gateway-linux-{CPUS[arch]}",
        **shared(version),
        "description": f"The binary of egret-gateway for Linux on {arch}",
        "os": ["linux"],
        "cpu": [CPUS[arch]],
        "files": ["egret"],
        "preferUnplugged": True,
    }
    return package(manifest, {"egret": (binary, 0o755)}, texts)


def shared(version):
    """Returns the fields that all manifests have."""
    return {"version": version, "license": "Apache-2.0"}


def package(manifest, files, texts):
    """Returns the name and the bytes of a package."""
    tree = Tree()
    tree.add("package.json", json.dumps(manifest, indent=2) + "\n")
    for name, text in texts.items():
        tree.add(name, text)
    for name, (data, mode) in files.items():
        tree.add(name, data, mode)
    return f"{manifest['name']}-{manifest['version']}.tgz", compressed(tar(tree, "package/"))
