"""The npm packages: `egret-gateway`, which everybody installs, and one for each platform, with the binary."""

import json
from pathlib import Path

from archives import Tree, compressed, tar

# npm's names of processors.
CPUS = {"x86_64": "x64", "aarch64": "arm64"}


def packages(packaging, version, arch, binary, texts, processors):
    """Yields the name and the bytes of both packages. The first one names those of all processors of a release."""
    platform = f"egret-gateway-linux-{CPUS[arch]}"
    shared = {"version": version, "license": "Apache-2.0"}
    main = {
        "name": "egret-gateway",
        **shared,
        "description": "A gateway for calls to third-party APIs: rate limits, retries, caching, keys, recordings",
        "keywords": ["api", "gateway", "proxy", "egress", "rate-limit", "retry", "har"],
        "bin": {"egret": "egret.js", "egret-gateway": "egret.js"},
        "files": ["egret.js"],
        "engines": {"node": ">=18"},
        "optionalDependencies": {f"egret-gateway-linux-{CPUS[processor]}": version for processor in processors},
    }
    carrier = {
        "name": platform,
        **shared,
        "description": f"The binary of egret-gateway for Linux on {arch}",
        "os": ["linux"],
        "cpu": [CPUS[arch]],
        "files": ["egret"],
        "preferUnplugged": True,
    }
    folder = Path(packaging, "npm")
    for manifest, files in (
        (main, {"egret.js": (Path(folder, "egret.js"), 0o755), "README.md": (Path(folder, "README.md"), 0o644)}),
        (carrier, {"egret": (binary, 0o755)}),
    ):
        tree = Tree()
        tree.add("package.json", json.dumps(manifest, indent=2) + "\n")
        for name, text in texts.items():
            tree.add(name, text)
        for name, (data, mode) in files.items():
            tree.add(name, data, mode)
        yield f"{manifest['name']}-{version}.tgz", compressed(tar(tree, "package/"))
