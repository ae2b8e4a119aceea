"""`metrics.jsonl` of a run: one number a line, as the supervisor writes it."""

from __future__ import annotations

from pathlib import Path

import orjson

from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.metric_names import PART_PREFIX


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


def add_scalars(path: Path, log_dir: Path) -> None:
    """Add what NeMo-RL drew but did not print, for the steps and validations that it printed.

    log_dir: its `logger.log_dir`, where TensorBoard's event files are if it was asked for. Timed parts of steps are
    left out. Raises `ValueError` for a damaged event file.
    """
    from nvtrader_rl_dagster.nemo_rl.logs.tensorboard import read_scalars

    drawn = [m for m in read_scalars(log_dir) if not m.name.startswith(PART_PREFIX)]
    if not drawn:
        return
    known = read_metrics(path)
    places, names = {m[:3] for m in known}, {m[:4] for m in known}
    with path.open("ab") as file:
        file.writelines(metric_line(m) for m in drawn if m[:3] in places and m[:4] not in names)


def metric_line(metric: Metric) -> bytes:
    """The line that `metrics.jsonl` has for one number."""
    row = metric._asdict()
    if metric.flag is None:
        del row["flag"]
    return orjson.dumps(row) + b"\n"


def _metric(line: bytes) -> Metric:
    row = orjson.loads(line)
    return Metric(row["step"], row["split"], row["set"], row["name"], row["value"], row.get("flag"))
