"""Event files of TensorBoard, written here field by field."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.logs.report import read_log
from nvtrader_rl_dagster.nemo_rl.logs.tensorboard import read_scalars
from nvtrader_rl_dagster.nemo_rl.metrics import add_scalars, metric_line, read_metrics
from tests import printed_logs as printed


def varint(value: int) -> bytes:
    rest = value >> 7
    return bytes([value & 0x7F | (0x80 if rest else 0)]) + (varint(rest) if rest else b"")


def message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step: int, scalars: dict[str, float]) -> bytes:
    values = b"".join(
        message(1, message(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))
        for tag, value in scalars.items()
    )
    data = varint(1 << 3 | 1) + struct.pack("<d", 1.7e9) + varint(2 << 3) + varint(step) + message(5, values)
    return struct.pack("<Q", len(data)) + b"crc." + data + b"crc."


VERSION = message(3, b"brain.Event:2")
FIRST = struct.pack("<Q", len(VERSION)) + b"crc." + VERSION + b"crc."


def write(folder: Path, data: bytes, name: str = "events.out.tfevents.1.host.7.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(FIRST + data)
    return folder


def test_scalars_have_our_names_and_global_steps(tmp_path: Path) -> None:
    data = event(1, {"train/loss": 0.5, "train/critic/loss": 0.25, "hparam/x": 1.0})
    data += event(300, {"validation-alpha/accuracy": 1.0, "timing/train/total_step_time": 2.0})
    write(tmp_path / "exp_001" / "tensorboard", data)
    assert read_scalars(tmp_path) == [
        Metric(1, "train", None, "critic_loss", 0.25),
        Metric(1, "train", None, "loss", 0.5),
        Metric(300, "train", None, "step_seconds", 2.0),
        Metric(300, "validation", "alpha", "accuracy", 1.0),
    ]


def test_what_is_no_number_is_null_with_a_flag(tmp_path: Path) -> None:
    write(tmp_path, event(2, {"train/loss": math.nan, "train/grad_norm": math.inf}))
    assert [(m.value, m.flag) for m in read_scalars(tmp_path)] == [(None, "inf"), (None, "nan")]


def test_the_newest_of_several_files_counts_and_a_cut_end_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "exp_001", event(1, {"train/loss": 9.0}) + event(2, {"train/loss": 8.0}))
    whole = event(1, {"train/loss": 1.0})
    for cut in range(1, len(whole)):
        write(tmp_path / "exp_002", event(2, {"train/loss": 2.0}) + whole[:-cut])
        assert [(m.step, m.value) for m in read_scalars(tmp_path)] == [(1, 9.0), (2, 2.0)]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, struct.pack("<Q", 4) + b"crc." + b"\x0f\xff\xff\xff" + b"crc.")
    with pytest.raises(ValueError, match=r"events\.out\.tfevents.* is no TensorBoard event file"):
        read_scalars(folder)


def test_scalars_add_to_a_log_what_it_does_not_print() -> None:
    text = printed.epoch(1) + printed.step(1, 1, "Loss: 0.5", before=printed.validation(1, "Validation loss: 0.25"))
    scalars = [
        Metric(1, "train", None, "loss", 0.51),
        Metric(1, "train", None, "grad_norm", None, "nan"),
        Metric(1, "validation", "default", "extra", 3.0),
        Metric(2, "train", None, "grad_norm", 1.0),
    ]
    report = read_log([text.encode()]).with_scalars(scalars)
    (step,), (validation,) = report.steps, report.validations
    assert step["metrics"]["loss"] == 0.5 and step["metrics"]["grad_norm"] is None
    assert validation["metrics"]["extra"] == 3.0
    assert report.flags == [{"step": 1, "split": "train", "set": None, "name": "grad_norm", "flag": "nan"}]


def test_a_run_gets_what_was_drawn_but_not_printed(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    printed_ones = [Metric(1, "train", None, "loss", 0.5), Metric(1, "validation", "default", "loss", None, "nan")]
    metrics.write_bytes(b"".join(metric_line(m) for m in printed_ones))
    drawn = event(
        1, {"train/loss": 0.25, "train/grad_norm": 2.0, "timing/train/refit": 1.0, "validation/avg_length": 8}
    )
    write(tmp_path / "logs", drawn + event(2, {"train/grad_norm": 3.0}))
    add_scalars(metrics, tmp_path / "logs")
    added = [Metric(1, "train", None, "grad_norm", 2.0), Metric(1, "validation", "default", "avg_length", 8.0)]
    assert read_metrics(metrics) == [*printed_ones, *added]


def test_a_run_without_tensorboard_stays_as_it_is(tmp_path: Path) -> None:
    add_scalars(tmp_path / "metrics.jsonl", tmp_path / "logs")
    assert list(tmp_path.iterdir()) == []
