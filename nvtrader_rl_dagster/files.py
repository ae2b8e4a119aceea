"""Small file operations that must be atomic: replace, publish by content, hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

_CURRENT = "current.json"
_MANIFEST = "manifest.json"


def write_json(path: Path, value: Any) -> None:
    """Replace `path` with `value` as JSON; a reader sees the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.fchmod(descriptor, 0o644)  # mkstemp makes it private; the web UI may run as another user
        with os.fdopen(descriptor, "wb") as out:
            out.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
            out.write(b"\n")
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """Parsed content of `path`. Raises `FileNotFoundError`, or `ValueError` that names the file."""
    try:
        return orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def sha256_of(paths: Iterable[Path]) -> str:
    """Hex digest over the names and bytes of `paths`, in the given order."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as source:
            while block := source.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class Version:
    """One published folder: its path, the hash of its content and what its writer said about it."""

    path: Path
    data_version: str
    manifest: dict[str, Any]


def publish(root: Path, write: Callable[[Path], dict[str, Any]], content: Iterable[str]) -> Version:
    """Write a folder through `write(folder) -> manifest` and publish it as `root/<content hash>`.

    Only the files named in `content` make the hash, so a report may change while the data version
    stays. `root/current.json` then points at the folder. A folder that a training reads is never
    changed in its content files: equal content has the same name, other content another.
    """
    root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=root, prefix=".staging-"))
    try:
        manifest = write(staging)
        version = sha256_of(staging / name for name in content)[:32]
        write_json(staging / _MANIFEST, {**manifest, "data_version": version})
        target = root / version
        if target.is_dir():
            for file in staging.iterdir():
                file.replace(target / file.name)
        else:
            staging.chmod(0o755)
            staging.replace(target)
        write_json(root / _CURRENT, {"data_version": version})
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return load(root, version)


def current(root: Path) -> Version | None:
    """The newest published version below `root`, or None when nothing was published yet."""
    pointer = root / _CURRENT
    return load(root, read_json(pointer)["data_version"]) if pointer.exists() else None


def load(root: Path, data_version: str) -> Version:
    """The published version with this hash. Raises `FileNotFoundError` if it is gone."""
    return Version(root / data_version, data_version, read_json(root / data_version / _MANIFEST))
