"""What a whole log says of a run: steps, validations, checkpoints, how it ended, why it failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from nvtrader_rl_dagster.nemo_rl.diagnosis.diagnose import diagnose
from nvtrader_rl_dagster.nemo_rl.diagnosis.table import BY_CODE
from nvtrader_rl_dagster.nemo_rl.log_parser import LogParser, Metric
from nvtrader_rl_dagster.nemo_rl.logs.lines import PLAIN, LineForm, form_of
from nvtrader_rl_dagster.nemo_rl.logs.steps import Launch

End = Literal["max_steps", "epochs", "timeout", "error", "unknown"]
#: Metric name -> value, or the flag that says why there is none.
_Row = dict[str, float | str | None]

_BLOCK = 1 << 18


@dataclass(frozen=True)
class LogReport:
    """A log in numbers. Steps are global, a value is None where nothing was measured, and `flags` says why.

    steps: [{step, metrics}]. validations: [{step, set, metrics}]. checkpoints: [{step, path}] of those saved and kept;
    path is None when the log does not name the folder. flags: [{step, split, set, name, flag}]. end: `epochs` also
    for a benchmark that was scored. failure: {code, line, advice}, or None.
    """

    steps: list[dict[str, Any]]
    validations: list[dict[str, Any]]
    checkpoints: list[dict[str, Any]]
    flags: list[dict[str, Any]]
    end: End
    failure: dict[str, Any] | None

    def with_scalars(self, scalars: Iterable[Metric]) -> LogReport:
        """The same with metrics that the log does not print, for the steps and validations that it has."""
        steps = {row["step"]: dict(row["metrics"]) for row in self.steps}
        validations = {(row["step"], row["set"]): dict(row["metrics"]) for row in self.validations}
        flags = list(self.flags)
        for metric in scalars:
            if metric.split == "train":
                row = steps.get(metric.step)
            else:
                row = validations.get((metric.step, metric.set or "default"))
            if row is not None and metric.name not in row:
                row[metric.name] = metric.value
                flags += _flags(metric.step, metric.split, metric.set, {metric.name: metric.flag or metric.value})
        return replace(
            self,
            steps=[{**row, "metrics": steps[row["step"]]} for row in self.steps],
            validations=[{**row, "metrics": validations[row["step"], row["set"]]} for row in self.validations],
            flags=flags,
        )


@dataclass
class _Found:
    """What one launch measured. Steps as counted from its headers."""

    launch: Launch
    steps: dict[int, _Row] = field(default_factory=dict)
    validations: dict[tuple[int, str], _Row] = field(default_factory=dict)

    def take(self, metrics: list[Metric]) -> None:
        for step, split, name_of_set, name, value, flag in metrics:
            if split == "train":
                row = self.steps.setdefault(step - self.launch.shift, {})
            else:
                row = self.validations.setdefault((step, name_of_set or "default"), {})
            row[name] = flag or value


class LogStream:
    """Takes a log in pieces of any size, in both forms of `logs.lines`."""

    def __init__(self) -> None:
        self.parser = LogParser(parts=True)
        self._found = [_Found(self.parser.count.launch)]
        self._form: LineForm | None = None
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """The next bytes; a line that they do not end waits for the next ones."""
        whole = data.rfind(b"\n") + 1
        if whole:
            self._scan(b"".join((*self._rest, data[:whole])))
            self._rest.clear()
        self._rest.append(data[whole:])

    def close(self) -> None:
        """The log ends here, perhaps within a line or a block."""
        last = b"".join(self._rest)
        self._rest.clear()
        form = self._form or form_of(last)
        self._take(self.parser.feed_last(form.text(last)) if form is PLAIN else self.parser.feed(form.text(last)))
        self._take(self.parser.close())

    def report(self, algo: str | None = None) -> LogReport:
        """The report of a closed log. algo: name in `ALGOS`; without one, only a score makes a log a benchmark's."""
        steps: dict[int, _Row] = {}
        validations: dict[tuple[int, str], _Row] = {}
        saved: set[int] = set()
        for found in self._found:
            shift = found.launch.shift
            if found.steps:
                # It went on from a checkpoint; what an earlier launch did beyond that is lost.
                first = min(found.steps) + shift
                steps = {step: row for step, row in steps.items() if step < first}
                validations = {key: row for key, row in validations.items() if key[0] < first}
                saved = {step for step in saved if step < first}
            steps |= {step + shift: row for step, row in found.steps.items()}
            validations |= found.validations
            saved |= set(found.launch.saved_steps)
        scored = any("score" in row for row in validations.values())
        benchmark = algo == "eval" or (algo is None and scored)
        end = self._end(scored)
        return LogReport(
            steps=[{"step": step, "metrics": _values(steps[step])} for step in sorted(steps)],
            validations=[
                {"step": step, "set": name, "metrics": _values(row)}
                for (step, name), row in sorted(validations.items(), key=lambda item: item[0][0])
            ],
            # NeMo-RL prints a step's results when its checkpoint is whole.
            checkpoints=self._checkpoints(saved & set(steps) if steps or end == "error" else saved),
            flags=[
                *(flag for step in sorted(steps) for flag in _flags(step, "train", None, steps[step])),
                *(flag for (step, name), row in validations.items() for flag in _flags(step, "validation", name, row)),
            ],
            end=end,
            failure=self._failure(end, trained=bool(steps), scored=scored, benchmark=benchmark),
        )

    def _scan(self, lines: bytes) -> None:
        self._form = self._form or form_of(lines)
        for metrics in self.parser.scan(lines, self._form):
            self._take(metrics)

    def _take(self, metrics: list[Metric]) -> None:
        launch = self.parser.count.launch
        if self._found[-1].launch is not launch:
            self._found.append(_Found(launch))
        self._found[-1].take(metrics)

    def _end(self, scored: bool) -> End:
        if self.parser.end:
            return self.parser.end
        if self.parser.trouble.error:
            return "error"
        return "epochs" if scored or self.parser.count.epochs_ended else "unknown"

    def _failure(self, end: End, trained: bool, scored: bool, benchmark: bool) -> dict[str, Any] | None:
        if end == "error":
            return {
                "code": "error",
                "line": self.parser.trouble.error,
                "advice": "The lines above it in the log say where.",
            }
        if benchmark:
            return None if scored else _known("no_score", "the log has no score.")
        return None if trained else _known("zero_steps", "the log has no training step.")

    def _checkpoints(self, saved: set[int]) -> list[dict[str, Any]]:
        folder = self.parser.checkpoint_directory
        return [
            {"step": step, "path": f"{folder.rstrip('/')}/step_{step}" if folder else None}
            for step in sorted(saved - self.parser.removed)
        ]


def _known(code: str, line: str) -> dict[str, Any]:
    return {"code": code, "line": line, "advice": BY_CODE[code].remedy}


def read_log(blocks: Iterable[bytes], algo: str | None = None) -> LogReport:
    """The report of a log that comes in blocks of any size."""
    stream = LogStream()
    for block in blocks:
        stream.feed(block)
    stream.close()
    return stream.report(algo)


def read_log_file(path: Path, algo: str | None = None) -> LogReport:
    """The report of a file, with the name and the remedy of the failure where it is a known one.

    Raises `OSError` when it cannot be read.
    """
    with path.open("rb") as file:
        report = read_log(iter(lambda: file.read(_BLOCK), b""), algo)
    if report.end != "error" and (report.failure is None or report.end != "unknown"):
        return report
    found = diagnose(path)
    if found.failure:
        failure = {"code": found.failure.code, "line": found.line, "advice": found.failure.remedy}
        return replace(report, failure=failure)
    return report


def _values(row: _Row) -> dict[str, float | None]:
    return {name: None if isinstance(value, str) else value for name, value in row.items()}


def _flags(step: int, split: str, set_name: str | None, row: _Row) -> list[dict[str, Any]]:
    return [
        {"step": step, "split": split, "set": set_name, "name": name, "flag": flag}
        for name, flag in row.items()
        if isinstance(flag, str)
    ]
