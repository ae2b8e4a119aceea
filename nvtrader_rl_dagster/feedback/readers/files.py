"""Which files to read, and opening them: plain or gzipped, found by content and by extension."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

_KINDS = {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_GZIP_MAGIC = b"\x1f\x8b"
_BUFFER = 1 << 18


class FeedbackFileError(ValueError):
    """A path that cannot be imported: missing, of no known kind, or a folder without feedback files."""


class FeedbackFile(NamedTuple):
    """name: the path below the folder that was given, or the file's own name. kind: json, jsonl, csv or parquet."""

    path: Path
    name: str
    kind: str


def iter_files(paths: Iterable[str | Path]) -> Iterator[FeedbackFile]:
    """The feedback files among `paths`; folders are searched recursively in sorted order, hidden names skipped.

    A file that is reached twice is given once. Raises FeedbackFileError.
    """
    known = ", ".join(_KINDS)
    seen: set[Path] = set()
    for given in map(Path, paths):
        if given.is_dir():
            found = [(p, p.relative_to(given)) for p in sorted(given.rglob("*")) if p.is_file() and _kind(p)]
            files = [
                FeedbackFile(p, name.as_posix(), _kind(p) or "")
                for p, name in found
                if not any(part.startswith(".") for part in name.parts)
            ]
            if not files:
                raise FeedbackFileError(f"{given}: the folder holds no feedback file ({known}, each also .gz)")
        elif not given.exists():
            raise FeedbackFileError(f"{given}: no such file or folder")
        else:
            kind = _kind(given)
            if kind is None:
                raise FeedbackFileError(f"{given}: unknown kind of file; known are {known}, each also .gz")
            files = [FeedbackFile(given, given.name, kind)]
        for file in files:
            resolved = file.path.resolve()
            if resolved not in seen:
                seen.add(resolved)
                yield file


def _kind(path: Path) -> str | None:
    name = path.name.lower().removesuffix(".gz")
    return _KINDS.get(Path(name).suffix)


class ByteSource(io.BufferedReader):
    """A buffered byte stream that ends at damaged data instead of raising; `damage` then says what was wrong."""

    def __init__(self, raw: _Tolerant) -> None:
        super().__init__(raw, _BUFFER)
        self._tolerant = raw
        self.gzipped = raw.gzipped

    @property
    def damage(self) -> str | None:
        return self._tolerant.damage


def open_bytes(path: Path) -> ByteSource:
    """Open a file for reading, through gzip if its first bytes say so. Raises OSError."""
    with path.open("rb") as probe:
        gzipped = probe.read(2) == _GZIP_MAGIC
    # Closed by the source that owns it.
    inner: Any = gzip.open(path, "rb") if gzipped else path.open("rb", buffering=0)  # noqa: SIM115
    return ByteSource(_Tolerant(inner, gzipped))


class _Tolerant(io.RawIOBase):
    def __init__(self, inner: IO[bytes], gzipped: bool) -> None:
        super().__init__()
        self._inner = inner
        # A full read of damaged gzip data raises and loses what was decompressed before the damage; read1 does not.
        self._read = getattr(inner, "read1", inner.read)
        self.gzipped = gzipped
        self.damage: str | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.damage is not None:
            return 0
        try:
            data = self._read(len(buffer))
        except (EOFError, zlib.error, OSError) as error:
            self.damage = str(error) or type(error).__name__
            return 0
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()
