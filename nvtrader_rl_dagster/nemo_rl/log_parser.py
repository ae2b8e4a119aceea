"""Metrics out of the log of a training or benchmark, for every algorithm of NeMo-RL 0.6.0 and 0.7.0.

Line shapes: the print calls of `nemo_rl/algorithms/*.py`, `nemo_rl/evals/eval.py`, `nemo_rl/utils/checkpoint.py` and
`examples/run_*.py` at the tags v0.6.0 and v0.7.0. The embedded trainer prints the same lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from nvtrader_rl_dagster.nemo_rl.logs.lines import PLAIN, LineForm, can_matter, of_the_driver
from nvtrader_rl_dagster.nemo_rl.logs.lines import clean as clean
from nvtrader_rl_dagster.nemo_rl.logs.steps import StepCounter
from nvtrader_rl_dagster.nemo_rl.logs.trouble import Trouble
from nvtrader_rl_dagster.nemo_rl.metric_names import Split as Split
from nvtrader_rl_dagster.nemo_rl.metric_names import part_name, printed_name

_HEADER = re.compile(r"={25} (Epoch|Step) (\d+)/(-?\d+) ={25}")
_RESULTS = re.compile(r"📊 (Training|Validation) Results(?: for `(.+)` set)?:")
_DIRECTORY = re.compile(r"📊 Using checkpoint directory: (.+)")
_VALIDATION_AT = re.compile(r"▶ Starting validation at step (\d+)")
_SAVING = re.compile(r"Saving checkpoint for step (\d+)\.\.\.")
_REMOVING = re.compile(r"Removing checkpoint .*step_(\d+) due to being outside top-")
_SEEN_SAVING = re.compile(rb"([^\s\"']+)/tmp_step_\d+")
_VALUES = re.compile(r"^ *• (?:Validation )?([A-Za-z][\w ]*): +(\S+)(?: tokens| steps)?[ \t]*$", re.MULTILINE)
#: NeMo-RL prints metrics with four decimals; what has fewer, and no line end, may be the start of a longer one.
_CUT = re.compile(r"• [^:]*: *-?\d*(?:\.\d{0,3})?$")
_PARTS = re.compile(r"^(?: *• |⏱\ufe0f?  )([^:\n]+): (\d+\.\d+)s(?: \(.*)?[ \t]*$", re.MULTILINE)
_TIMING = re.compile(r"⏱\ufe0f?\s+(Validation )?Timing")
_BENCHMARK = re.compile(r"model_name='.*' dataset_name='(.*)'")
_SCORE = re.compile(r"score=(\S+) \(\S+/(\d+)\)\s*")
#: What counts samples; when it is 0, nothing was measured.
_COUNTERS = ("num_valid_samples", "num_samples")


class Metric(NamedTuple):
    """One number. `value` is None when it was not measured; `flag` then says why."""

    step: int
    split: Split
    set: str | None
    name: str
    value: float | None
    flag: str | None = None


#: The constructor of a named tuple takes four times as long, and a long log has millions.
_new = tuple.__new__


class LogParser:
    """Feed it lines in order; it returns metrics as their blocks end.

    count: steps, global. steps_seen: training blocks. signs: grows with each sign of progress. removed: steps whose
    checkpoints were deleted to make room. parts: return the timed parts of a step as well.
    """

    def __init__(self, parts: bool = False) -> None:
        self.count = StepCounter()
        self.trouble = Trouble()
        self.steps_seen = 0
        self.removed: set[int] = set()
        self.checkpoint_directory: str | None = None
        self.ready = False
        self.signs = 0
        self.end: Literal["max_steps", "timeout"] | None = None
        self._parts = parts
        self._validation_step: int | None = None
        self._benchmark: str | None = None
        self._block: tuple[Literal["results", "timing"], Split, str | None] | None = None
        self._values: list[tuple[str, str]] = []

    @property
    def step(self) -> int:
        """The step that runs, or ran last; 0 before the first one."""
        return self.count.step

    @property
    def steps_per_epoch(self) -> int | None:
        return self.count.per_epoch

    @property
    def epochs(self) -> int | None:
        return self.count.epochs

    @property
    def saved_steps(self) -> list[int]:
        """Steps whose saving began, in order."""
        return [step for launch in self.count.launches for step in launch.saved_steps]

    def feed(self, raw: str) -> list[Metric]:
        """Metrics that this line completes. `raw` may carry carriage returns and escape codes."""
        found: list[Metric] = []
        if self.trouble.follows or can_matter(raw):
            self._take(raw, found)
        if self.checkpoint_directory is None and "/tmp_step_" in raw:
            self._find_directory(raw.encode(errors="replace"))
        return found

    def feed_last(self, raw: str) -> list[Metric]:
        """The same for a last line that nothing ends: a bullet's number that may have been cut is left out."""
        return [] if _CUT.search(raw) else self.feed(raw)

    def scan(self, data: bytes, form: LineForm = PLAIN) -> Iterator[list[Metric]]:
        """The same for whole lines stored in `form`, looking only at those that can matter."""
        if self.checkpoint_directory is None and b"/tmp_step_" in data:
            self._find_directory(data)
        redrawn = form.redrawn_lines(data)[::-1]
        at = 0
        while at < len(data):
            found: list[Metric] = []
            if not self.trouble.follows:
                while redrawn and redrawn[-1] < at:
                    redrawn.pop()
                start = form.next_line(data, at)
                if redrawn and (start < 0 or redrawn[-1] < start):
                    start = redrawn.pop()
                if start < 0:
                    return
                at = start
            at = self._line(data, at, form, found)
            if self._block:
                bullets, at = form.bullets_at(data, at)
                if bullets:
                    self._bullets(bullets, found)
            if found:
                yield found

    def close(self) -> list[Metric]:
        """Metrics of a block that the end of the log cut off."""
        found: list[Metric] = []
        self._close(found)
        return found

    def _line(self, data: bytes, start: int, form: LineForm, found: list[Metric]) -> int:
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        self._take(form.text(data[start:end]), found)
        return end + 1

    def _take(self, raw: str, found: list[Metric]) -> None:
        line = of_the_driver(clean(raw))
        if not can_matter(line):
            if self.trouble.follows:
                self.trouble.follow(line)
            return
        line = line.lstrip()
        if line[0] == "•":
            self._bullets(line, found)
        elif line[0] == "⏱":
            self._timing(line, found)
        else:
            self._close(found)
            self._event(line, found)

    def _bullets(self, lines: str, found: list[Metric]) -> None:
        if self._block is None:
            return
        kind, split, name = self._block
        if kind == "results":
            self._values += _VALUES.findall(lines)
        else:
            self._timed(lines, split, name, found)

    def _timed(self, lines: str, split: Split, name: str | None, found: list[Metric]) -> None:
        step = self._step_of(split)
        for label, seconds in _PARTS.findall(lines):
            part = part_name(label)
            if part == "step_seconds":
                self.count.finish()
            if self._parts or part in ("step_seconds", "validation_seconds"):
                found.append(_new(Metric, (step, split, name, part, float(seconds), None)))

    def _timing(self, line: str, found: list[Metric]) -> None:
        block = self._block
        self._close(found)
        name = block[2] if block and block[1] == "validation" else "default"
        if match := _TIMING.match(line):
            self._block = ("timing", "validation", name) if match.group(1) else ("timing", "train", None)
        elif block and block[1] == "validation":
            self._timed(line, "validation", name, found)

    def _event(self, line: str, found: list[Metric]) -> None:
        """A line of the driver that is no bullet."""
        if match := _RESULTS.match(line):
            training = match.group(1) == "Training"
            self._block = ("results", "train", None) if training else ("results", "validation", match[2] or "default")
        elif match := _HEADER.match(line):
            begin = self.count.epoch if match.group(1) == "Epoch" else self.count.header
            begin(int(match.group(2)), int(match.group(3)))
            self._validation_step = None
        elif match := _VALIDATION_AT.match(line):
            self._validation_step = int(match.group(1))
            self.count.correct(self._validation_step)
        elif match := _SAVING.match(line):
            step = int(match.group(1))
            self.count.correct(step)
            self.count.launch.saved_steps.append(step)
            self.removed.discard(step)
        elif match := _REMOVING.match(line):
            self.removed.add(int(match.group(1)))
            return
        elif match := _DIRECTORY.match(line):
            self.checkpoint_directory = match.group(1).strip()
            return
        elif line.startswith("SETUP COMPLETE"):
            self.ready, self.end = True, None
            self.count.start()
        elif line.startswith(("Max number of steps", "Timeout has been")):
            self.end = "max_steps" if line[0] == "M" else "timeout"
        elif line.startswith("Generation sample buffer size"):
            self.count.give_up_batch()
        elif match := _BENCHMARK.match(line):
            self._benchmark = match.group(1) or "default"
        elif self._benchmark and (match := _SCORE.fullmatch(line)):
            self._score(self._benchmark, match.group(1), match.group(2), found)
        else:
            self.trouble.begin(line)
            return
        self.signs += 1
        self.trouble.over()

    def _score(self, name: str, score: str, samples: str, found: list[Metric]) -> None:
        value, flag = _number(score)
        found.append(Metric(0, "validation", name, "score", value, flag))
        found.append(Metric(0, "validation", name, "num_samples", float(samples)))

    def _step_of(self, split: Split) -> int:
        return self.step if split == "train" or self._validation_step is None else self._validation_step

    def _close(self, found: list[Metric]) -> None:
        if self._block is None:
            return
        (kind, split, name), self._block = self._block, None
        if kind == "timing":
            return
        values, self._values = [(printed_name(label), *_number(text)) for label, text in self._values], []
        if split == "train":
            self.steps_seen += 1
        # Without a valid sample NeMo-RL prints zeros, which are no measurement.
        unmeasured = any(value == 0 and key in _COUNTERS for key, value, _ in values)
        step = self._step_of(split)
        for key, value, flag in values:
            if unmeasured and key not in _COUNTERS:
                found.append(_new(Metric, (step, split, name, key, None, "no_valid_samples")))
            elif value is not None or flag:
                found.append(_new(Metric, (step, split, name, key, value, flag)))

    def _find_directory(self, data: bytes) -> None:
        """NeMo-RL's distillation does not print its folder; a worker that saves does."""
        if match := _SEEN_SAVING.search(data):
            self.checkpoint_directory = match.group(1).decode(errors="replace")


def _number(text: str) -> tuple[float | None, str | None]:
    """The value, or None and why; both None for a text that is no number."""
    try:
        value = float(text)
    except ValueError:
        return None, "not_available" if text == "N/A" else None
    if math.isfinite(value):
        return value, None
    return None, "nan" if math.isnan(value) else "inf"
