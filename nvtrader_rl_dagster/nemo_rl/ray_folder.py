"""The own folder of a launch for Ray: short, because Ray puts sockets into it, private, and removed with the launch."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from nvtrader_rl_dagster.files import read_json, write_json

_PREFIX = "nvr-"
_MARK = "launch.json"
#: A socket path has at most 107 characters, and Ray adds about 60 of its own.
_LONGEST = 44


def path(launch_id: str) -> Path:
    """Where the folder of a launch is, or would be."""
    name = _PREFIX + launch_id[:12]
    wanted = Path(tempfile.gettempdir()) / name
    return wanted if len(str(wanted)) <= _LONGEST else Path("/tmp") / name


def create(launch_id: str, lease: str) -> Path:
    """Make it, readable by nobody else. Raises `FileExistsError` when somebody was faster."""
    folder = path(launch_id)
    folder.mkdir(mode=0o700)
    write_json(folder / _MARK, {"launch_id": launch_id, "lease": lease})
    return folder


def remove_left_over(lease: Path, living: set[str]) -> list[Path]:
    """Remove the folders of launches below this lease that no longer live; which ones."""
    removed = []
    for base in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for folder in base.glob(f"{_PREFIX}*"):
            try:
                mark = read_json(folder / _MARK)
            except (OSError, ValueError):  # not ours, or being made right now
                continue
            if mark["lease"] == str(lease) and mark["launch_id"] not in living:
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed
