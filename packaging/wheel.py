"""The Python wheel: the binary as a script, and a module that finds it."""

import base64
import hashlib
from pathlib import Path

from archives import Tree, zipped

# A static binary needs no C library, so it runs wherever these tags are accepted. They are those of the oldest pip that
# knows them; the kernel must be Linux 3.2 or newer.
TAGS = {
    "x86_64": ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"),
    "aarch64": ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"),
}


def wheel(packaging, version, arch, binary, texts):
    """Returns the name and the bytes of the wheel."""
    tags = TAGS[arch]
    info, data = f"egret_gateway-{version}.dist-info", f"egret_gateway-{version}.data"
    tree = Tree()
    for path in sorted(Path(packaging, "python", "egret_gateway").glob("*.py")):
        tree.add(f"egret_gateway/{path.name}", path)
    tree.add(f"{data}/scripts/egret", binary, 0o755)
    tree.add(f"{info}/entry_points.txt", entry_points())
    tree.add(f"{info}/METADATA", metadata(version, texts, Path(packaging, "python", "README.md").read_text()))
    for name, text in texts.items():
        tree.add(f"{info}/licenses/{name}", text)
    lines = ["Wheel-Version: 1.0", f"Generator: egret {version}", "Root-Is-Purelib: false"]
    tree.add(f"{info}/WHEEL", "\n".join(lines + [f"Tag: py3-none-{tag}" for tag in tags]) + "\n")
    tree.add(f"{info}/RECORD", record(tree, f"{info}/RECORD"))
    return f"egret_gateway-{version}-py3-none-{'.'.join(tags)}.whl", zipped(tree)


def entry_points():
    """`pipx run` looks in its own group, and for a command with the package's name."""
    line = "egret-gateway = egret_gateway.__main__:main\n"
    return f"[console_scripts]\n{line}\n[pipx.run]\n{line}"


def metadata(version, texts, readme):
    """Returns the core metadata, version 2.4."""
    lines = [
        "Metadata-Version: 2.4",
        "Name: egret-gateway",
        f"Version: {version}",
        "Summary: A gateway for calls to third-party APIs: rate limits, retries, caching, keys, recordings",
        "License-Expression: Apache-2.0",
        *(f"License-File: {name}" for name in texts),
        "Keywords: api,gateway,proxy,egress,rate-limit,retry,har",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Topic :: Internet :: Proxy Servers",
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + readme


def record(tree, own):
    """Lists every file with its hash and size."""
    lines = []
    for path, entry in sorted(tree.entries.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(entry.data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(entry.data)}")
    return "\n".join([*lines, f"{own},,"]) + "\n"
