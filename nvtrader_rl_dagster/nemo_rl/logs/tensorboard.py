"""Scalars out of TensorBoard event files, without TensorBoard.

Format: TFRecord frames (length uint64, its CRC, data, its CRC) of `Event` messages, as in TensorFlow's
`core/lib/io/record_writer.h`, `core/util/event.proto` and `core/framework/summary.proto`. Checksums are not checked.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.metric_names import tag_name

_LENGTH_BYTES, _CRC_BYTES = 8, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EVENT_STEP, _EVENT_SUMMARY = 2, 5
_SUMMARY_VALUE = 1
_VALUE_TAG, _VALUE_SIMPLE = 1, 2


def read_scalars(folder: Path) -> list[Metric]:
    """The metrics in the event files of `folder` and of the folders below it, by step; the newest value of each.

    folder: NeMo-RL's `logger.log_dir`, one of its `exp_NNN`, or a `tensorboard` folder. Tags that are no metric of
    the run are left out, and so is what a writer that still runs, or died, has not finished. Raises `ValueError` for
    a damaged file.
    """
    found: dict[tuple[int, str, str | None, str], Metric] = {}
    for path in sorted(folder.rglob("events.out.tfevents.*"), key=lambda path: (path.parent, path.name)):
        try:
            for metric in _scalars(path.read_bytes()):
                found[metric[:4]] = metric
        except (ValueError, IndexError, struct.error) as error:
            raise ValueError(f"{path} is no TensorBoard event file ({error}); delete it, or copy it again") from error
    return sorted(found.values(), key=lambda metric: (metric.step, metric.split, metric.set or "", metric.name))


def _scalars(data: bytes) -> Iterator[Metric]:
    at = 0
    while at + _LENGTH_BYTES + _CRC_BYTES < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        at += _LENGTH_BYTES + _CRC_BYTES
        if at + length + _CRC_BYTES > len(data):
            return
        yield from _event(data[at : at + length])
        at += length + _CRC_BYTES


def _event(data: bytes) -> Iterator[Metric]:
    step = 0
    summaries: list[bytes] = []
    for number, value in _fields(data):
        if number == _EVENT_STEP and isinstance(value, int):
            step = value
        elif number == _EVENT_SUMMARY and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, entry in _fields(summary):
            if number == _SUMMARY_VALUE and isinstance(entry, bytes):
                yield from _value(entry, step)


def _value(data: bytes, step: int) -> Iterator[Metric]:
    fields = dict(_fields(data))
    tag, scalar = fields.get(_VALUE_TAG), fields.get(_VALUE_SIMPLE)
    if isinstance(tag, bytes) and isinstance(scalar, float) and (name := tag_name(tag.decode("utf-8", "replace"))):
        flag = None if math.isfinite(scalar) else "nan" if math.isnan(scalar) else "inf"
        yield Metric(step, *name, None if flag else scalar, flag)


def _fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Field numbers and values of a protobuf message: varints, 32-bit floats, byte strings; others are skipped."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == _BYTES:
            length, at = _varint(message, at)
            yield key >> 3, message[at : at + length]
            at += length
        elif kind == _FIXED32:
            yield key >> 3, struct.unpack_from("<f", message, at)[0]
            at += 4
        elif kind == _FIXED64:
            at += 8
        else:
            raise ValueError(f"wire type {kind} is no protobuf field")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
