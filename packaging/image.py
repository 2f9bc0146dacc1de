"""The container image: an OCI layout with one layer for each processor, made from nothing."""

import hashlib
import json
from pathlib import Path

from archives import Tree, compressed, moment, tar

# No such user exists on a host, and it is not root.
USER = 65532
CPUS = {"x86_64": "amd64", "aarch64": "arm64"}


def layer(packaging, binary, texts):
    """Returns the only layer, as a tar archive."""
    tree = Tree()
    tree.add("usr/bin/egret", binary, 0o755)
    tree.add("etc/egret/egret.yaml", Path(packaging, "image", "egret.yaml"))
    tree.add_folder("var/lib/egret", 0o700, USER)
    for name, text in texts.items():
        tree.add(f"usr/share/doc/egret/{name}", text)
    return tar(tree)


def image(packaging, version, binaries):
    """Returns the layout as a tar archive, as `oci-archive:` of skopeo and podman read it: an index of the image of each
    processor. `binaries` has the binary and the legal texts by processor.
    """
    blobs = Tree()

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs.add(f"blobs/sha256/{digest}", data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    labels = {
        "org.opencontainers.image.title": "egret",
        "org.opencontainers.image.description": "A gateway for calls to third-party APIs",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": moment(),
    }
    manifests = []
    for arch, (binary, texts) in binaries.items():
        platform = {"architecture": CPUS[arch], "os": "linux"}
        uncompressed = layer(packaging, binary, texts)
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(as_json(config(platform, labels, uncompressed)), "config.v1+json"),
            "layers": [blob(compressed(uncompressed), "layer.v1.tar+gzip")],
            "annotations": labels,
        }
        manifests.append({**blob(as_json(manifest), "manifest.v1+json"), "platform": platform})
    # A layout names one thing, from which its reader takes the image for its processor.
    named = blob(index(manifests), "index.v1+json")
    blobs.add("index.json", index([{**named, "annotations": {"org.opencontainers.image.ref.name": version}}]))
    blobs.add("oci-layout", as_json({"imageLayoutVersion": "1.0.0"}))
    return tar(blobs)


def index(manifests):
    """Returns an index of images."""
    media = "application/vnd.oci.image.index.v1+json"
    return as_json({"schemaVersion": 2, "mediaType": media, "manifests": manifests})


def config(platform, labels, uncompressed):
    """Returns the config of the image with this layer."""
    command = ["/usr/bin/egret"]
    return {
        "created": moment(),
        **platform,
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"8000/tcp": {}, "8001/tcp": {}},
            "Entrypoint": command,
            "Cmd": ["run", "--config", "/etc/egret/egret.yaml"],
            "WorkingDir": "/var/lib/egret",
            "Labels": labels,
            "StopSignal": "SIGTERM",
            # Not part of OCI; Docker and Podman read it.
            "Healthcheck": {
                "Test": ["CMD", *command, "health", "--config", "/etc/egret/egret.yaml"],
                "Interval": 10_000_000_000,
                "Timeout": 5_000_000_000,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(uncompressed).hexdigest()]},
        "history": [{"created": moment(), "created_by": "packaging/image.py"}],
    }


def as_json(value):
    """Returns JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
