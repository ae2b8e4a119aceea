"""The preflight of a run that is about to be launched: its report goes into the run folder, a refusal ends the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.files import write_json
from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.preflight.case import Start
from nvtrader_rl_dagster.nemo_rl.preflight.report import Report
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory

REPORT_FILE = "preflight.json"


class PreflightError(Exception):
    """A run that was refused before anything was launched. `report` says all that was found."""

    def __init__(self, run_id: str, report: Report) -> None:
        self.report = report
        first = report.refusals[0]
        more = f" (and {len(report.refusals) - 1} more)" if len(report.refusals) > 1 else ""
        super().__init__(f"training run {run_id} was refused ({first.code}): {first.message}; {first.remedy}{more}")


def before_launch(
    directory: RunDirectory,
    trainer: Trainer,
    config: Mapping[str, Any],
    *,
    start: Start = Start.AUTO,
    cache: Path | None = None,
) -> Report:
    """Look at a run whose folder is made and whose trainer is not started. Warnings become notes of its record.

    Raises `PreflightError` for a refusal, after the run has been ended as failed with the finding's code.
    """
    # The checks are many modules, and the code location imports this one.
    from nvtrader_rl_dagster.nemo_rl.preflight.check import preflight

    record = directory.record()
    report = preflight(record.algo, config, trainer, checkpoints=directory.checkpoints, start=start, cache=cache)
    write_json(directory.path / REPORT_FILE, report.to_dict())
    if report.warnings:
        directory.update(notes=[*record.notes, *(f"{found.code}: {found.message}" for found in report.warnings)])
    if report.refusals:
        first, *others = report.refusals
        more = f" Refused as well: {', '.join(found.code for found in others)}; see {REPORT_FILE}." if others else ""
        directory.fail(first.code, first.message, f"{first.remedy}.{more}")
        raise PreflightError(directory.run_id, report)
    return report
