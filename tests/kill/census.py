"""Who is alive of a trainer tree, known without asking the product: what its processes wrote, and their environment."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

CENSUS_VARIABLE = "NVTRADER_FAKE_CENSUS"
_LAUNCH_VARIABLE = "NVTRADER_LAUNCH_ID"


@dataclass(frozen=True)
class Census:
    """The file in which every process of the fake tree wrote itself down."""

    file: Path

    def lines(self, what: str | None = None, launch: str | None = None) -> list[dict[str, Any]]:
        """What was said so far, in order; a line that is just being written is left for the next read."""
        if not self.file.exists():
            return []
        found = [json.loads(line) for line in self.file.read_text(encoding="utf-8").split("\n")[:-1]]
        return [
            line
            for line in found
            if (what is None or line["what"] == what) and (launch is None or line["launch"] == launch)
        ]

    def alive(self) -> dict[int, str]:
        """Live processes by pid: those that wrote themselves down, and any whose environment names a launch of ours."""
        found = {
            line["pid"]: f"{line['role']} of launch {line['launch']}"
            for line in self.lines("started")
            if _start_ticks(line["pid"]) == line["started"]
        }
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                launch = environment.get(_LAUNCH_VARIABLE)
                if (
                    launch
                    and environment.get(CENSUS_VARIABLE) == str(self.file)
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.setdefault(process.pid, f"{' '.join(process.cmdline())[-80:]} of launch {launch}")
        return found

    def of_launches(self, launches: set[str]) -> dict[int, str]:
        """Live processes of these launches."""
        return {pid: who for pid, who in self.alive().items() if who.rpartition(" ")[2] in launches}

    def launches_alive(self) -> set[str]:
        return {who.rpartition(" ")[2] for who in self.alive().values()}

    def kill(self) -> Iterator[int]:
        """SIGKILL whatever is left; the pids."""
        for pid in self.alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
                yield pid


def _start_ticks(pid: int) -> int | None:
    """Start time of a live process as the kernel counts it; None for one that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
