"""The lease of the GPU: a file lock that the kernel drops when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

_POLL_SECONDS = 0.1
#: An observer holds a shared lock for a moment; a launcher does not take that for another holder.
_PATIENCE_SECONDS = 1.0


class GpuLease:
    """An exclusive `flock(2)` on `path`. The file stays; only the lock comes and goes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        #: What the holder before us wrote; empty after it gave the lease back.
        self.previous: dict[str, Any] = {}

    def acquire(self, holder: dict[str, Any], wait_seconds: float, give_up: Callable[[], bool] = bool) -> bool:
        """Take the lock and write down who holds it; False when somebody else kept it, or `give_up()` said so."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Python's descriptors are not inherited: a trainer that outlives us does not keep the lock.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + max(wait_seconds, _PATIENCE_SECONDS)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline or give_up():
                    os.close(descriptor)
                    return False
                time.sleep(_POLL_SECONDS)
        self.previous = _content(descriptor)
        with contextlib.suppress(OSError):  # on a full disk the lock still holds
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, orjson.dumps(holder), 0)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def lease_holder(path: Path) -> dict[str, Any] | None:
    """Who holds the lease: launch_id, directory, run_id and pid; empty when it does not say; None when it is free."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _content(descriptor)
    finally:
        os.close(descriptor)


def last_holder(path: Path) -> dict[str, Any]:
    """Who held the lease last without giving it back; empty when nobody did."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return {}
    try:
        return _content(descriptor)
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> dict[str, Any]:
    try:
        content: dict[str, Any] = orjson.loads(os.pread(descriptor, 65536, 0))
    except orjson.JSONDecodeError:
        return {}
    return content
