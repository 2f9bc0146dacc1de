"""Starts a command that runs the demo, prints `answered` once the gateway forwards a call, and stops it with SIGTERM.

Prints the exit code as the second line. Expects a network of its own, as `support.alone` makes it.
"""

import subprocess
import sys

from support import INSTALL_S, get, until

demo = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
try:
    until("the demo answers", lambda: (get(8000, "/demo/get") or (0,))[0] == 200, INSTALL_S)
    print("answered", flush=True)
finally:
    demo.terminate()
    print(demo.wait())
