"""`data_dir` on upgrade and downgrade: versions read what another one wrote, and reject formats that they do not know.

With `EARLIER`, the path of another version's binary, both take turns: each reads what the other one wrote.
"""

import json
import os
import sys
import unittest
from pathlib import Path

import data_dir
from support import PACKAGING, Scratch, alone, run

SCRIPT = PACKAGING / "tests" / "data_dir.py"
# What earlier versions wrote, each named after its version and commit, and made by `data_dir.py keep`.
WRITTEN = sorted((PACKAGING / "tests" / "written").glob("*.tar.gz"))
WHOLE = {
    "cached": True,
    "authority": True,
    "documents": data_dir.SENT,
    "listed": data_dir.LISTED,
    "pseudonym": True,
}


class DataDir(Scratch):
    def setUp(self):
        super().setUp()
        self.egret = self.unpack() / "egret"
        self.data = self.folder / "place"

    def whole(self, **other):
        """Returns the findings of a version that finds everything."""
        return {"left": data_dir.units_left(self.data), **WHOLE, **other}

    def play(self, action, egret):
        printed = run(*alone(sys.executable, SCRIPT, action, egret, self.data)).stdout
        return json.loads(printed) if printed else None

    def test_this_version_reads_what_it_wrote(self):
        self.play("write", self.egret)
        self.assertEqual(self.play("read", self.egret), self.whole())

    def test_this_version_reads_what_each_earlier_one_wrote(self):
        self.assertGreater(len(WRITTEN), 0)
        for packed in WRITTEN:
            with self.subTest(packed.name):
                run("rm", "-rf", self.data)
                self.data.mkdir()
                run("tar", "--no-same-owner", "-xf", packed, "-C", self.data)
                self.assertEqual(self.play("read", self.egret), self.whole())

    @unittest.skipUnless(os.environ.get("EARLIER"), "EARLIER names no binary")
    def test_an_earlier_version_and_this_one_take_turns(self):
        earlier = Path(os.environ["EARLIER"]).resolve()
        for first, second in ((earlier, self.egret), (self.egret, earlier)):
            run("rm", "-rf", self.data)
            self.play("write", first)
            self.assertEqual(self.play("read", second), self.whole())
            # And back: the first version finds the second one's quota used up, and sends nothing again.
            again = self.play("again", first)
            self.assertEqual(again, self.whole(left=0, documents=0))

    def test_a_quota_file_of_an_unknown_format_stops_the_start_and_is_kept(self):
        self.play("write", self.egret)
        file = self.data / "egret-data" / "quotas.redb"
        unknown = with_version(file.read_bytes(), 99)
        file.write_bytes(unknown)
        failed = run(*alone(sys.executable, SCRIPT, "read", self.egret, self.data), check=False)
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("found 99", failed.stderr)
        self.assertEqual(file.read_bytes(), unknown)

    def test_a_cache_of_an_unknown_format_begins_empty(self):
        self.play("write", self.egret)
        seals = list((self.data / "egret-data" / "cache").glob("*/seal"))
        self.assertEqual(len(seals), 1)
        seals[0].write_bytes(b"egretdk9" + seals[0].read_bytes()[8:])
        self.assertEqual(self.play("read", self.egret), self.whole(cached=False))


def with_version(database, version):
    """Sets the version of the file's format, which is at the start of both commit slots of redb's header."""
    changed = bytearray(database)
    changed[64] = changed[192] = version
    return bytes(changed)
