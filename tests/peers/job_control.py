"""Drives an interactive bash on a pseudo-terminal of its own, as a user at a keyboard would.

    job_control.py PROGRAM CONFIG

PROGRAM is Egret. Each step writes what a user would type, and waits for what the terminal must show. The exit code is 0
if all steps worked; otherwise the output ends with the step and with what the terminal showed.
"""

import os
import pty
import re
import select
import signal
import sys
import termios
import time

DEADLINE_S = 30
PATIENCE_S = 3

CTRL_C, CTRL_D, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x04", "\x1a", "\x1c"


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, arguments):
        self.child, self.side = pty.fork()
        if self.child == 0:
            # The caller may ignore some of them, as a shell does for commands in the background.
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
                signal.signal(number, signal.SIG_DFL)
            # Without this, Linux sends the signal of a key first and then discards the terminal's output, which may
            # already have what the shell says about the signal.
            settings = termios.tcgetattr(0)
            settings[3] |= termios.NOFLSH
            termios.tcsetattr(0, termios.TCSANOW, settings)
            os.environ.update(PS1="PROMPT> ", TERM="dumb", HISTFILE="")
            os.execvp(arguments[0], arguments)
        self.shown = ""

    def type(self, text):
        os.write(self.side, text.encode())

    def press(self, key, pattern):
        """Presses a key until the terminal shows `pattern`.

        Bash gives the terminal to a new job while that already runs, so a key that comes at once may miss the job. This
        happens without Egret as well.
        """
        for _ in range(DEADLINE_S // PATIENCE_S):
            self.type(key)
            if found := self.awaited(pattern, PATIENCE_S):
                return found
        sys.exit(f"no key makes the terminal show {pattern!r}: {self.shown!r}")

    def until(self, pattern):
        """Waits until the terminal shows `pattern`, and forgets everything up to its end."""
        if found := self.awaited(pattern, DEADLINE_S):
            return found
        sys.exit(f"the terminal does not show {pattern!r} but {self.shown!r}")

    def awaited(self, pattern, seconds):
        """Does the same for at most these seconds. Returns None if it does not."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.shown)):
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self.side], [], [], left)[0]
            if not ready:
                return None
            try:
                self.shown += os.read(self.side, 4096).decode(errors="replace")
            except OSError:
                sys.exit(f"the shell ended before it showed {pattern!r}: {self.shown!r}")
        self.shown = self.shown[found.end() :]
        return found

    def run(self, line, pattern):
        """Types a command line, and waits for its echo and then for `pattern`."""
        self.type(line + "\n")
        self.until(re.escape(line) + r"\r\n")
        return self.until(pattern)


def main():
    program, config = sys.argv[1:]
    through = f"{program} exec --config {config} --"
    terminal = Terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"])
    terminal.until("PROMPT> ")

    print("Ctrl-C ends the command, and the shell sees by which signal", flush=True)
    terminal.run(f"{through} sh -c 'echo READY; sleep 1000'", "READY\r\n")
    terminal.press(CTRL_C, "PROMPT> ")
    terminal.run("echo code $?", r"code 130\r\n")

    print("Ctrl-\\ does as well", flush=True)
    terminal.run("ulimit -c 0", "PROMPT> ")
    terminal.run(f"{through} sh -c 'echo READY; exec sleep 1000'", "READY\r\n")
    terminal.press(CTRL_BACKSLASH, "PROMPT> ")
    terminal.run("echo code $?", r"code 131\r\n")

    print("Ctrl-Z stops the command, fg continues it, and it still has the terminal", flush=True)
    # One process, which has stopped when the shell says so: a second one might still read the next line.
    repeat = "while read line; do echo $line; done"
    terminal.run(f"{through} sh -c 'echo READY; {repeat}; echo END'", "READY\r\n")
    terminal.type("one\n")
    terminal.until(r"one\r\none\r\n")
    for line in ("two", "three"):
        terminal.press(CTRL_Z, "Stopped")
        terminal.until("PROMPT> ")
        terminal.run("jobs", "Stopped")
        terminal.run("fg", "; echo END")
        terminal.type(line + "\n")
        terminal.until(rf"{line}\r\n{line}\r\n")
    terminal.type(CTRL_D)
    terminal.until(r"END\r\n")
    terminal.until("PROMPT> ")
    terminal.run("echo code $?", r"code 0\r\n")

    print("A job in the background stops when it reads, and fg gives it the terminal", flush=True)
    terminal.run(f"{through} sh -c 'read line; echo got $line' &", "PROMPT> ")
    terminal.run("wait -f; jobs", r"Stopped")
    terminal.run("fg", "got ")
    terminal.type("input\n")
    terminal.until(r"got input\r\n")
    terminal.until("PROMPT> ")

    print("The gateway survives the Ctrl-C that its command handles", flush=True)
    waits = "until test $caught; do sleep 0.05; done"
    script = f'trap "caught=1; echo CAUGHT" INT; echo READY; {waits}; curl --silent http://origin.test/; echo; exit 9'
    terminal.run(f"{through} sh -c '{script}'", "READY\r\n")
    terminal.press(CTRL_C, r"CAUGHT\r\n")
    terminal.until(r"from a remedy\r\n")
    terminal.until("PROMPT> ")
    terminal.run("echo code $?", r"code 9\r\n")

    print("The size of the terminal and its changes are the command's", flush=True)
    terminal.run("stty rows 37 cols 111", "PROMPT> ")
    terminal.run(f"{through} stty size", r"37 111\r\n")
    terminal.until("PROMPT> ")

    terminal.type("exit 5\n")
    _, status = os.waitpid(terminal.child, 0)
    if os.waitstatus_to_exitcode(status) != 5:
        sys.exit(f"the shell ended with status {status}")


if __name__ == "__main__":
    signal.alarm(8 * DEADLINE_S)
    main()
