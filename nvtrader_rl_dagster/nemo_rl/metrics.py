"""Reads `metrics.jsonl`: one number a line, as the supervisor wrote it."""

from __future__ import annotations

from pathlib import Path

import orjson

from nvtrader_rl_dagster.nemo_rl.log_parser import Metric


class MetricsFollower:
    """Metrics of a running training, each once; a half-written last line is left for the next read."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset

    def read(self) -> list[Metric]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [_metric(line) for line in whole.splitlines()]


def read_metrics(path: Path) -> list[Metric]:
    """All metrics of a run so far."""
    return MetricsFollower(path).read()


def forget_after(path: Path, step: int) -> None:
    """Drop what was measured after `step`: a resumed run measures it again."""
    if path.exists():
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if line.endswith(b"\n") and _metric(line).step <= step))


def _metric(line: bytes) -> Metric:
    row = orjson.loads(line)
    return Metric(row["step"], row["split"], row["set"], row["name"], row["value"], row.get("flag"))
