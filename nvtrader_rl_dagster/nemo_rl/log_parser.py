"""Metrics out of a NeMo-RL log, line by line. Knows the DPO blocks of NeMo-RL 0.6.0 and 0.7.0.

Line shapes: NeMo-RL `algorithms/dpo.py` (`validate_one_dataset`, `dpo_train`) at tag v0.6.0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

_EPOCH = re.compile(r"={25} Epoch (\d+)/(\d+) ={25}")
_STEP = re.compile(r"={25} Step (\d+)/(\d+) ={25}")
_VALIDATION_AT = re.compile(r"▶ Starting validation at step (\d+)(?: for `([^`]+)` set)?")
_SAVING = re.compile(r"Saving checkpoint for step (\d+)\.\.\.")
_BLOCK = re.compile(r"📊 (Training|Validation) Results(?: for `([^`]+)` set)?:")
_TIMING = re.compile(r"⏱️\s+(?:Validation )?Timing")
_BULLET = re.compile(r"\s+• (?:Validation )?([A-Za-z_][\w ]*?): (\S+)$|\s+•")
_HEADER = re.compile("|".join(p.pattern for p in (_EPOCH, _STEP, _VALIDATION_AT, _SAVING, _BLOCK, _TIMING)))
_READY = re.compile(r"SETUP COMPLETE")
_END = re.compile(r"(Max number of steps|Timeout) has been reached, stopping training early")
_SECONDS = re.compile(r"• Total step time: ([\d.]+)s")
#: ECMA-48 control sequences, control strings (window titles, links) and other escapes, each also when cut short;
#: single control characters except tab, line feed and carriage return.
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)

Split = Literal["train", "validation"]


@dataclass(frozen=True)
class Metric:
    """One number. `value` is None when it was not measured; `flag` then says why."""

    step: int
    split: Split
    set: str | None
    name: str
    value: float | None
    flag: str | None = None


@dataclass
class LogParser:
    """Feed it lines in order; it yields metrics as their blocks end. Steps are global."""

    step: int = 0
    steps_seen: int = 0
    steps_per_epoch: int | None = None
    epochs: int | None = None
    saved_steps: list[int] = field(default_factory=list)
    ready: bool = False
    end: Literal["max_steps", "timeout"] | None = None
    _epoch: int = 1
    _counted: int = 0
    _shift: int = 0
    _validation_step: int = 0
    _block: tuple[Split, str | None] | None = None
    _bullets: dict[str, float] = field(default_factory=dict)

    def feed(self, raw: str) -> Iterator[Metric]:
        """Metrics that this line completes. `raw` may carry carriage returns and escape codes."""
        line = clean(raw)
        if self._block:
            if bullet := _BULLET.match(line):
                value = _number(bullet.group(2) or "")
                if value is not None:
                    self._bullets[bullet.group(1).strip().replace(" ", "_").lower()] = value
                return
            # A worker's line may fall between the bullets; only a line of the driver ends the block.
            if not _HEADER.search(line):
                return
            yield from self._close()
        if match := _BLOCK.search(line):
            training = match.group(1) == "Training"
            self._block = ("train", None) if training else ("validation", match.group(2) or "default")
        elif match := _EPOCH.search(line):
            self._epoch, self.epochs = int(match.group(1)), int(match.group(2))
        elif match := _STEP.search(line):
            # The printed step restarts in each epoch.
            self.steps_per_epoch = int(match.group(2))
            self._counted = (self._epoch - 1) * self.steps_per_epoch + int(match.group(1))
            self.step = self._counted + self._shift
        elif match := _VALIDATION_AT.search(line):
            self._validation_step = int(match.group(1))
            self._correct(self._validation_step)
        elif match := _SAVING.search(line):
            self._correct(int(match.group(1)))
            self.saved_steps.append(int(match.group(1)))
        elif match := _SECONDS.search(line):
            yield Metric(self.step, "train", None, "step_seconds", float(match.group(1)))
        elif match := _END.search(line):
            self.end = "timeout" if match.group(1) == "Timeout" else "max_steps"
        elif _READY.search(line):
            self.ready = True

    def close(self) -> Iterator[Metric]:
        """Metrics of a block that the end of the log cut off."""
        if self._block:
            yield from self._close()

    def _correct(self, global_step: int) -> None:
        """These lines print the global step, which a run resumed with other batches cannot count."""
        if self._counted and global_step:
            self._shift = global_step - self._counted
            self.step = global_step

    def _close(self) -> Iterator[Metric]:
        assert self._block is not None
        split, name = self._block
        bullets, self._bullets, self._block = self._bullets, {}, None
        if split == "train":
            self.steps_seen += 1
        # Without a valid sample NeMo-RL prints zeros, which are no measurement.
        unmeasured = bullets.get("num_valid_samples") == 0
        for key, value in bullets.items():
            flag = None
            if unmeasured and key != "num_valid_samples":
                flag = "no_valid_samples"
            elif math.isnan(value):
                flag = "nan"
            elif math.isinf(value):
                flag = "inf"
            step = self.step if split == "train" else self._validation_step
            yield Metric(step, split, name, key, None if flag else value, flag)


def clean(raw: str) -> str:
    """What a terminal would show of one line: no escape codes, the last state of a progress bar."""
    if raw.isprintable():
        return raw  # most lines, and much faster
    # Escapes first: one behind the last carriage return would hide that the line ends there.
    return _ESCAPE.sub("", raw).rstrip("\r\n").rsplit("\r", 1)[-1]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
