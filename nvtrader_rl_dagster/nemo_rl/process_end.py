"""What became of processes that somebody else started: gone, orphaned, still listening."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection
from datetime import datetime

#: A pid is not given to another process this soon, and wall clocks are corrected by less.
_CLOCK_SECONDS = 2.0
_CONNECT_SECONDS = 1.0


def why_gone(pid: int, seen: float) -> str | None:
    """Why the process that had `pid` at `seen` (seconds since 1970) does not run any more; None when it does.

    A pid is used again, soon after a restart of the machine or of a container: a process that began after `seen` is
    another one.
    """
    import psutil

    restarted = ""
    if (booted := psutil.boot_time()) > seen + _CLOCK_SECONDS:
        restarted = f"; the machine was restarted at {datetime.fromtimestamp(booted):%Y-%m-%d %H:%M:%S}"
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return f"process {pid} has ended and waits to be collected"
        if process.create_time() > seen + _CLOCK_SECONDS:
            return f"pid {pid} belongs to a later process{restarted}"
    except psutil.NoSuchProcess:
        return f"there is no process {pid}{restarted}"
    return None


def is_child_of(pid: int, words: Collection[str]) -> bool:
    """Whether the parent of a process has all these words on its command line."""
    import psutil

    try:
        parent = psutil.Process(pid).parent()
        return parent is not None and set(words) <= set(parent.cmdline())
    except psutil.Error:
        return False


def listens(address: str | tuple[str, int]) -> bool:
    """Whether a server accepts connections at a socket path or at (host, port)."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(address)
        except OSError:
            return False
    return True
