"""Archives with the same bytes on every run: sorted entries, one time, no owners, no names of this machine."""

import gzip
import io
import os
import tarfile
import zipfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass
class Entry:
    """A file, or a folder if `data` is None."""

    data: bytes | None
    mode: int = 0o644
    uid: int = 0


@dataclass
class Tree:
    """Entries by path, without a leading slash."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def add(self, path, data, mode=0o644):
        """Adds a file: bytes, text, or the content of a path."""
        if isinstance(data, Path):
            data = data.read_bytes()
        elif isinstance(data, str):
            data = data.encode()
        self.entries[path] = Entry(data, mode)

    def add_folder(self, path, mode=0o755, uid=0):
        """Adds a folder. Folders that only hold files need not be added."""
        self.entries[path] = Entry(None, mode, uid)

    def write(self, folder):
        """Writes all entries below a folder, with the time of the release."""
        for path, entry in sorted(self.entries.items()):
            target = Path(folder, path)
            if entry.data is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(entry.data)
            target.chmod(entry.mode)
        for path in sorted(Path(folder).rglob("*"), reverse=True):
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (epoch(), epoch()))


def epoch():
    """The time of the release, in seconds: SOURCE_DATE_EPOCH."""
    return int(os.environ["SOURCE_DATE_EPOCH"])


def moment():
    """The same as RFC 3339 text."""
    return datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def tar(tree, prefix=""):
    """Returns a tar archive. Folders above files get entries of their own."""
    entries = dict(tree.entries)
    for path in tree.entries:
        for parent in list(Path(path).parents)[:-1]:
            entries.setdefault(str(parent), Entry(None, 0o755))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, entry in sorted(entries.items()):
            info = tarfile.TarInfo(prefix + path)
            info.mtime, info.mode, info.uid, info.gid = epoch(), entry.mode, entry.uid, entry.uid
            if entry.data is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()


def compressed(data):
    """Returns data in gzip, without a name and a time."""
    return gzip.compress(data, compresslevel=9, mtime=0)


def zipped(tree):
    """Returns a zip archive."""
    buffer = io.BytesIO()
    when = datetime.fromtimestamp(epoch(), UTC).timetuple()[:6]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, entry in sorted(tree.entries.items()):
            info = zipfile.ZipInfo(path, when)
            info.external_attr = (0o100000 | entry.mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            archive.writestr(info, entry.data, compresslevel=9)
    return buffer.getvalue()
