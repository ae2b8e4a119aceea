"""The inbox: which dropped feedback files are complete, and importing each of them once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # SQLAlchemy is not cheap, and the code location imports this module.
    from nvtrader_rl_dagster.feedback.import_report import ImportReport
    from nvtrader_rl_dagster.feedback.store import FeedbackStore

IMPORTED, FAILED = "imported", "failed"
SETTLE_SECONDS = 10.0
ERROR_SUFFIX = ".error.txt"
#: Names under which browsers and copy tools write what is not complete yet.
UNFINISHED = (".part", ".partial", ".filepart", ".tmp", ".crdownload", ".download", "~")
#: Where the kernel refuses a lease also when nobody writes.
_NO_LEASES = frozenset({"nfs4", "cifs", "smb3"})
#: Leaves room for a number and the ending of the error text below the 255 bytes of a file name.
_STEM_BYTES = 220
_NAME = re.compile(r"(.*?)((?:\.\w{1,8})?(?:\.gz)?)", re.ASCII | re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class DroppedFile:
    """A file in the inbox as it was seen: another inode, size or mtime is another file."""

    path: Path
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def at(cls, path: Path) -> DroppedFile | None:
        """The file at `path` now, None when it is gone."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(path, found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class Inbox:
    """What lies in the inbox. ready: oldest first. waiting: (name, why it is left alone), in order of name."""

    ready: list[DroppedFile]
    waiting: list[tuple[str, str]]

    @property
    def fingerprint(self) -> str:
        """Short hash of the ready files' names, sizes and times of change."""
        seen = [(os.fsencode(file.path.name), file.size, file.mtime_ns) for file in self.ready]
        return hashlib.sha256(repr(sorted(seen)).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class FileOutcome:
    """What became of one dropped file.

    moved_to: where it lies now. report: its rows; None when there was nothing to read. error: why it failed, "" for
    an imported file.
    """

    name: str
    moved_to: Path
    report: ImportReport | None
    error: str = ""


def read_inbox(folder: Path, settle_seconds: float = SETTLE_SECONDS) -> Inbox:
    """Files directly in `folder`, split into complete ones and those to be left alone. The folder may be missing.

    Ready is a file that is not hidden, has no name of `UNFINISHED`, was not modified for `settle_seconds` and that no
    process of this machine has open for writing. Hidden files are passed over; other folders than `imported` and
    `failed` are not entered and are listed as waiting.
    """
    ready: list[DroppedFile] = []
    waiting: list[tuple[str, str]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name.startswith(".") or path.name in (IMPORTED, FAILED):
            continue
        reason = _not_ready(path, settle_seconds)
        if reason:
            waiting.append((printable(path.name), reason))
        elif file := DroppedFile.at(path):
            ready.append(file)
    return Inbox(sorted(ready, key=lambda file: (file.mtime_ns, file.path.name)), waiting)


def import_file(store: FeedbackStore, file: DroppedFile) -> FileOutcome | None:
    """Import one ready file and move it to `imported/`; a file of which no row can be read goes to `failed/` instead.

    `failed/<name>.error.txt` then says what to do. Nothing is overwritten: a taken name gets a number. Returns None
    when the file is gone or was changed meanwhile; a changed one is seen again. One process imports at a time. A crash
    between the import and the move is harmless, because the same rows add no event when they are imported again.
    Raises OSError when the inbox is not writable, and what the store raises.
    """
    from nvtrader_rl_dagster.feedback.importing import import_paths
    from nvtrader_rl_dagster.feedback.readers import FeedbackFileError

    path = file.path
    with _one_at_a_time(path.parent):
        if DroppedFile.at(path) != file:
            return None
        report = None
        try:
            _check_name(path)
            report = import_paths(store, [path])
            error = _unreadable(report)
        except FeedbackFileError as refused:
            error = f"line: -\nfield: -\nproblem: {refused}\nremedy: rename the file, or convert it to a known kind\n"
        if DroppedFile.at(path) != file:
            return None
        target = _free(path.parent / (FAILED if error else IMPORTED), path.name)
        if error:
            # Before the move: a crash in between leaves the file in the inbox, to be tried again.
            _write_error(target, path, error)
        shutil.move(path, target)
    return FileOutcome(printable(path.name), target, report, error)


def printable(name: str) -> str:
    """A file name as text that every database takes: bytes that are not UTF-8 become visible escapes."""
    return name.encode(errors="backslashreplace").decode()


def _not_ready(path: Path, settle_seconds: float) -> str:
    """Why this entry is left alone; empty when it is complete."""
    try:
        found = path.stat()
    except OSError as error:
        return f"gone, or a broken link ({error.strerror})"
    if stat.S_ISDIR(found.st_mode):
        return "a folder, which is not entered; move its files up"
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if path.name.endswith(ERROR_SUFFIX):
        return "says what is wrong with a file and is no feedback; delete it"
    if path.name.lower().endswith(UNFINISHED):
        return "still being written (by its name)"
    now = time.time()
    # A copy may keep a time of change that lies in our future; its arrival here does not.
    changed = found.st_mtime if found.st_mtime <= now else found.st_ctime
    if now - changed < settle_seconds:
        return "still being written (changed a moment ago)"
    return "still being written (open in another program)" if _open_for_writing(path) else ""


def _open_for_writing(path: Path) -> bool:
    """Whether the kernel says so: it gives no read lease on such a file. False where it cannot tell."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # A writer that comes while we hold the lease makes the kernel signal us; the usual SIGIO would kill.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        return _filesystem(os.fstat(descriptor).st_dev, mounts) not in _NO_LEASES
    except OSError:
        # Another user's file (EACCES) or a file system without leases (EINVAL, ENOLCK): the settle time must do.
        return False
    finally:
        os.close(descriptor)
    return False


def _filesystem(device: int, mountinfo: str) -> str:
    """Type of the file system with this device number, from the text of `/proc/self/mountinfo` (man 5 proc)."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2:3] == [number]:
            return source.split()[0]
    return ""


def _check_name(path: Path) -> None:
    """Raises FeedbackFileError for a name that could not be recorded with the rows."""
    from nvtrader_rl_dagster.feedback.readers import FeedbackFileError

    if printable(path.name) != path.name:
        raise FeedbackFileError(f"{printable(path.name)}: the file's name is not UTF-8; rename it")


def _unreadable(report: ImportReport) -> str:
    """What keeps the whole file from being read; empty when at least one row was recognised or the file was whole."""
    from nvtrader_rl_dagster.feedback.reasons import REASONS

    (read,) = report.files
    if not read.problem and not (read.partial and not read.formats):
        return ""
    lines = []
    for problem in report.first_problems:
        known = REASONS[problem["reason"]]
        lines += [
            f"line: {problem['line'] or '-'}",
            f"field: {problem['field'] or '-'}",
            f"problem: {problem['reason']}: {known.explanation} ({problem['detail'] or 'no detail'})",
            f"remedy: {known.remedy}",
            "",
        ]
    return "\n".join(lines)


def _write_error(target: Path, dropped: Path, error: str) -> None:
    text = (
        f"file: {printable(target.name)}\n{error}\n"
        f"No decision of this file was stored. Correct it and move it back to {dropped.parent}\n"
    )
    target.with_name(target.name + ERROR_SUFFIX).write_text(printable(text), encoding="utf-8")


def _free(folder: Path, name: str) -> Path:
    """A path in `folder` that is not taken: the name, or the name with a number before its extension."""
    folder.mkdir(exist_ok=True)
    stem, extension = _NAME.fullmatch(printable(name)).groups()  # type: ignore[union-attr]  # matches any text
    stem = stem.encode()[:_STEM_BYTES].decode(errors="ignore")
    target, number = folder / (stem + extension), 1
    while os.path.lexists(target):
        number += 1
        target = folder / f"{stem}-{number}{extension}"
    return target


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Two runs never import the same file: a file dropped under its name in between would be moved unread."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
