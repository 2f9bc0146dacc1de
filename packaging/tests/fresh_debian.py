"""A fresh Debian in a folder, made by mmdebstrap from the sources of packages that this machine uses."""

import shutil
import tempfile
from pathlib import Path

from support import run


class FreshDebian:
    """A root with its own package database; `remove` deletes it."""

    def __init__(self, packages):
        self.folder = Path(tempfile.mkdtemp(prefix="egret-debian-"))
        self.root = self.folder / "root"
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        # apt's own user cannot run everything that a container allows root.
        command = ["mmdebstrap", "--mode=root", "--variant=essential", '--aptopt=APT::Sandbox::User "root"']
        run(*command, f"--include={packages}", release["VERSION_CODENAME"].strip('"'), self.root)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, *command, **options):
        """Runs a command in the root, which is not booted."""
        isolated = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.root}/proc"]
        return run(*isolated, "chroot", self.root, *command, **options)

    def install(self, path):
        shutil.copy(path, self.root / "root" / "egret.deb")
        self.inside("dpkg", "--install", "/root/egret.deb")
