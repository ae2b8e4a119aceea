"""A cancel request: a file in the run folder, which its supervisor sees within half a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.files import read_json, write_json
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, timestamp

CANCEL_FILE = "cancel.json"


def request_cancel(directory: RunDirectory, by: str) -> None:
    """Ask for the run to be stopped; a second request changes nothing. A cancelled run is never resumed."""
    file = directory.path / CANCEL_FILE
    if not file.exists():
        write_json(file, {"by": by, "requested": timestamp()})


def cancel_request(folder: Path) -> dict[str, Any] | None:
    """Who asked for this run to be stopped and when; None when nobody did."""
    file = folder / CANCEL_FILE
    request: dict[str, Any] | None = read_json(file) if file.exists() else None
    return request
