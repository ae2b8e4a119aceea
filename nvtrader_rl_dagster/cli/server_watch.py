"""Brings back a killed code server: `dagster dev` restarts only the proxy in front of it, and sensors would stop."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_PROXY = ["code-server", "start"]
_SERVER = ["api", "grpc"]


class CodeServerWatch:
    """Looks at the children of `dagster dev`; call `look` every few seconds."""

    def __init__(self, dagster_dev: int) -> None:
        self._dagster_dev = dagster_dev
        self._healthy: set[int] = set()
        self._suspect: set[int] = set()

    def look(self) -> list[int]:
        """End each proxy that had a code server and lacked it twice in a row; `dagster dev` starts both again."""
        import psutil

        ended = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for proxy in psutil.Process(self._dagster_dev).children():
                if not _is(proxy, _PROXY):
                    continue
                if any(_is(child, _SERVER) for child in proxy.children()):
                    self._healthy.add(proxy.pid)
                    self._suspect.discard(proxy.pid)
                elif proxy.pid in self._suspect:
                    self._suspect.discard(proxy.pid)
                    self._healthy.discard(proxy.pid)
                    proxy.terminate()
                    ended.append(proxy.pid)
                elif proxy.pid in self._healthy:
                    self._suspect.add(proxy.pid)
        return ended


def _is(process: psutil.Process, words: list[str]) -> bool:
    import psutil

    try:
        command = process.cmdline()
        zombie = process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    return not zombie and any(command[at : at + 2] == words for at in range(len(command)))
