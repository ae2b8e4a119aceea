"""What a training run came to: its final state, the reason, and a manifest for each checkpoint. Written once."""

from __future__ import annotations

import contextlib
import platform
import re
import signal
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS, DataShape
from nvtrader_rl_dagster.nemo_rl.cancel import cancel_request
from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.diagnosis.diagnose import diagnose
from nvtrader_rl_dagster.nemo_rl.diagnosis.table import BY_CODE
from nvtrader_rl_dagster.nemo_rl.launch_files import Exit, ProcessRecord, Reason
from nvtrader_rl_dagster.nemo_rl.metrics import add_scalars, read_metrics
from nvtrader_rl_dagster.nemo_rl.redaction import redact_file
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState, timestamp

#: Ends after which the same training may go on from its newest checkpoint: nobody wanted them.
RESUMABLE = frozenset({"owner_gone", "supervisor_died", "terminated", "trainer_killed"})


def conclude(directory: RunDirectory) -> RunRecord:
    """The final record of a run whose supervisor has ended or died. A run that is concluded stays as it is."""
    record = directory.record()
    if record.ended_for_good:
        return record
    launch = ProcessRecord.read(directory.path)
    ended = Exit.read(directory.path, launch.launch_id) if launch else None
    # Also those of a save that was killed.
    for config in directory.checkpoints.glob("*/config.yaml"):
        redact_file(config)
    # A broken event file or a full disk must not hide how the run ended.
    with contextlib.suppress(ValueError, OSError):
        add_scalars(directory.metrics, directory.path / "logs")
    checkpoints = complete_checkpoints(directory.checkpoints)
    for checkpoint in checkpoints:
        if not (checkpoint.path / "manifest.json").exists():
            checkpoint.write_manifest(_manifest(directory, record, checkpoint))
    state, failure = _outcome(directory, ended, checkpoints)
    return directory.update(
        state=state, ended=timestamp(), exit_code=ended.exit_code if ended else None, failure=failure
    )


def _outcome(
    directory: RunDirectory, ended: Exit | None, checkpoints: list[Checkpoint]
) -> tuple[RunState, dict[str, Any] | None]:
    if ended is not None and ended.left:
        pids = ", ".join(map(str, ended.left))
        return RunState.FAILED, _failure(
            "survivors", f"processes {pids} could not be ended.", "They may hang in the kernel; reboot if they stay."
        )
    if ended is None or ended.reason is Reason.SUPERVISOR_DIED:
        if request := cancel_request(directory.path):
            return RunState.CANCELLED, _failure("cancelled", f"cancelled by {request['by']}", "")
        return RunState.FAILED, _failure("supervisor_died", "its supervisor was killed.", "It resumes when retried.")
    if ended.reason is Reason.CANCELLED:
        return RunState.CANCELLED, _failure("cancelled", ended.detail, "")
    if ended.reason is Reason.STALLED:
        found = diagnose(directory.log, ended.first_line)
        said = f" The log says: {found.line}" if found.line else ""
        remedy = f"{found.failure.remedy} " if found.failure else ""
        return RunState.STALLED, _failure("stalled", f"{ended.detail}{said}", f"{remedy}The whole log: {directory.log}")
    if ended.reason is Reason.EXITED:
        failure = _failure_of_exit(directory, ended, checkpoints)
        return (RunState.FAILED if failure else RunState.SUCCEEDED), failure
    advice = {
        Reason.OWNER_GONE: "The process that ran the step died; it resumes when retried.",
        Reason.TERMINATED: "It resumes when retried.",
        Reason.TIME_LIMIT: "Raise run_limit_minutes, or lower max_steps.",
        Reason.LEASE_HELD: "Wait for that run, or end it: nvtrader-rl runs cancel.",
        Reason.FOREIGN_RAY: "NeMo-RL would join it, and nothing could stop it there. End that cluster first.",
        Reason.NOT_STARTED: "Is the interpreter there? See nvtrader-rl doctor.",
    }
    return RunState.FAILED, _failure(ended.reason.value, ended.detail, advice[ended.reason])


def _failure_of_exit(directory: RunDirectory, ended: Exit, checkpoints: list[Checkpoint]) -> dict[str, Any] | None:
    """Why a trainer that ended by itself did not train; None when it did."""
    if ended.exit_code:
        return _failure_of_error(directory, ended, ended.exit_code)
    metrics = read_metrics(directory.metrics)
    if ALGOS[directory.record().algo].data is DataShape.BENCHMARK:
        scored = any(m.name == "score" and m.value is not None for m in metrics)
        return None if scored else _known("no_score", "the benchmark ended without a score.")
    if not any(m.split == "train" for m in metrics):
        return _known("zero_steps", "the trainer ended without one optimizer step.")
    if not checkpoints:
        return _known("no_checkpoint", "the trainer ended without a complete checkpoint.")
    loss = next((m for m in reversed(metrics) if m.split == "train" and m.name == "loss"), None)
    if loss is not None and loss.flag in ("nan", "inf"):
        return _known("nan_loss", f"the loss of step {loss.step} is {loss.flag}.")
    return None


def _failure_of_error(directory: RunDirectory, ended: Exit, code: int) -> dict[str, Any]:
    """The failure of a trainer that said so by its exit code, or was killed."""
    found = diagnose(directory.log, ended.first_line)
    if found.failure is BY_CODE["disk_full"] or ended.lost_lines or (not found.line and _full_disk(ended.tail)):
        return _known("disk_full", f"there was no room to write: {found.line or _full_disk(ended.tail) or 'the log'}.")
    if code < 0:
        why = " Memory may have run out." if code == -signal.SIGKILL else ""
        said = f" The log says: {found.line}" if found.line else ""
        line = f"the trainer was ended by {signal.Signals(-code).name}.{said or why}"
        return _failure("trainer_killed", line, "It resumes when retried.")
    if found.failure is not None:
        return _failure(found.failure.code, found.line, found.failure.remedy)
    last = next((line.strip() for line in reversed(ended.tail) if line.strip()), "no output")
    return _failure("exit", found.line or last, f"(exit code {code}; the whole log: {directory.log})")


def _full_disk(tail: list[str]) -> str | None:
    """The last line that says so; a full disk may have swallowed what stood around it."""
    patterns = [re.compile(pattern) for pattern in BY_CODE["disk_full"].raised]
    return next((line.strip() for line in reversed(tail) if any(p.search(line) for p in patterns)), None)


def _known(code: str, line: str) -> dict[str, Any]:
    return _failure(code, line, BY_CODE[code].remedy)


def _failure(code: str, line: str, advice: str) -> dict[str, Any]:
    return {"code": code, "line": line, "advice": advice}


def _manifest(directory: RunDirectory, record: RunRecord, checkpoint: Checkpoint) -> dict[str, Any]:
    import yaml

    config = yaml.safe_load(directory.config.read_text(encoding="utf-8"))
    metrics = {
        f"{m.split}/{m.name}": m.value
        for m in read_metrics(directory.metrics)
        if m.step == checkpoint.step and m.value is not None
    }
    return {
        "checkpoint_id": f"{record.run_id}/step_{checkpoint.step}",
        "run_id": record.run_id,
        "step": checkpoint.step,
        "algo": record.algo,
        "backend": record.backend,
        "base_model": config["policy"]["model_name"],
        "data_version": record.data_hash,
        "ledger_id": record.ledger_id,
        "trained_through_seq": record.trained_through_seq,
        "validation_fraction": record.validation_fraction,
        "config_hash": record.config_hash,
        **checkpoint.describe(),
        "versions": versions(),
        "metrics": metrics,
    }


def versions() -> dict[str, str]:
    """Versions of what a checkpoint depends on; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in ("nvtrader-rl-dagster", "dagster", "torch", "transformers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
