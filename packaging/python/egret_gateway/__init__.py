"""Egret, a gateway for calls to third-party APIs. This package carries its binary; `binary()` says where."""

import os
import sys
import sysconfig


def binary():
    """Returns the path of the `egret` binary that was installed with this package."""
    user = sysconfig.get_preferred_scheme("user")
    # `pip install --target` puts scripts beside the packages.
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme=user), beside]
    for folder in folders:
        path = os.path.join(folder, "egret")
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"no egret in {', '.join(folders)}: install egret-gateway again ({sys.executable})")
