"""`egret-gateway` and `python -m egret_gateway`: becomes the `egret` binary, so signals and exit codes are its own."""

import os
import sys

from egret_gateway import binary


def main():
    path = binary()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
