"""How a run is concluded from what its supervisor left: one named failure, or none."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from nvtrader_rl_dagster.nemo_rl.conclusion import RESUMABLE, conclude
from nvtrader_rl_dagster.nemo_rl.launch_files import Exit, ProcessRecord, Reason
from nvtrader_rl_dagster.nemo_rl.log_writer import LogWriter
from nvtrader_rl_dagster.nemo_rl.processes import ProcessIdentity
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState, RunStore

STEP = f"{'=' * 25} Step 1/1 {'=' * 25}\n📊 Training Results:\n  • loss: %s\n\n⏱️  Timing:\n  • Total step time: 0.10s"
OUT_OF_MEMORY = (
    "Traceback (most recent call last):\n"
    '  File "/opt/nemo-rl/examples/run_dpo.py", line 104, in <module>\n'
    "    main()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
)
UNKNOWN = OUT_OF_MEMORY.rpartition("\n")[0] + "\nValueError: Unknown precision: fp4"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunStore(tmp_path / "runs").create("dpo", "nemo_rl")
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    ProcessRecord("launch", 1, me, None, None, 1, "", str(tmp_path / "lease")).write(directory.path)
    directory.config.write_text("policy: {model_name: m}\n")
    return directory


def checkpoint(directory: RunDirectory) -> None:
    folder = directory.checkpoints / "step_1"
    weights = folder / "policy" / "weights" / "model" / "consolidated"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_bytes(b"weights")
    (weights / "config.json").write_text("{}")
    (folder / "training_info.json").write_bytes(orjson.dumps({"total_steps": 1}))


def ended(
    directory: RunDirectory, log: str, exit_code: int, reason: Reason = Reason.EXITED, lost_lines: int = 0
) -> RunRecord:
    """The record after a trainer has printed this and ended so."""
    writer = LogWriter(directory)
    for line in log.split("\n"):
        writer.line(line.encode() + b"\n")
    writer.close()
    Exit(
        "launch",
        reason,
        exit_code,
        "no new step for 60 s after step 1: " if reason is Reason.STALLED else "",
        lines=writer.lines,
        first_line=writer.first_line,
        lost_lines=lost_lines,
        tail=list(writer.tail),
    ).write(directory.path)
    return conclude(directory)


def failure(record: RunRecord) -> dict[str, str]:
    assert record.failure is not None and set(record.failure) == {"code", "line", "advice"}
    return record.failure


def test_a_known_failure_has_its_name_its_line_and_its_remedy(run: RunDirectory) -> None:
    record = ended(run, OUT_OF_MEMORY + "\nthe last line", 1)
    assert record.state is RunState.FAILED
    said = failure(record)
    assert said["code"] == "gpu_out_of_memory"
    assert said["line"] == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert "micro batch" in said["advice"]


def test_an_unknown_failure_is_an_exit_with_the_last_exception_instead_of_the_last_line(run: RunDirectory) -> None:
    said = failure(
        ended(run, UNKNOWN + "\n2026-11-30 08:20:43,961\tINFO worker.py:2013 -- Connected to Ray cluster.", 1)
    )
    assert (said["code"], said["line"]) == ("exit", "ValueError: Unknown precision: fp4")
    assert "exit code 1" in said["advice"] and str(run.log) in said["advice"]


def test_an_exit_without_an_exception_quotes_the_last_line(run: RunDirectory) -> None:
    said = failure(ended(run, "usage: run_dpo.py\nrun_dpo.py: error: unrecognized arguments: --x\n\n", 2))
    assert (said["code"], said["line"]) == ("exit", "run_dpo.py: error: unrecognized arguments: --x")


def test_a_message_in_the_log_of_a_training_that_worked_is_no_failure(run: RunDirectory) -> None:
    checkpoint(run)
    record = ended(run, f"{STEP % 0.5}\n{OUT_OF_MEMORY}\nuser: No space left on device", 0)
    assert (record.state, record.failure) == (RunState.SUCCEEDED, None)


def test_without_a_step_or_a_checkpoint_it_is_that_whatever_else_is_printed(run: RunDirectory) -> None:
    said = failure(ended(run, OUT_OF_MEMORY, 0))
    assert said["code"] == "zero_steps" and "batch_pairs" in said["advice"]


def test_a_benchmark_needs_a_score_and_neither_a_step_nor_a_checkpoint(run: RunDirectory) -> None:
    run.update(algo="eval")
    block = (
        "model_name='m' dataset_name='d'\nmax_new_tokens=2048 temperature=0.0\nmetric=pass@1 num_tests_per_prompt=1\n\n"
    )
    assert ended(run, block + "score=0.1000 (3.0/30)", 0).state is RunState.SUCCEEDED


def test_a_benchmark_without_a_score_has_failed_although_it_exits_with_0(run: RunDirectory) -> None:
    run.update(algo="eval")
    failure = ended(run, "nothing to see", 0).failure
    assert failure is not None and failure["code"] == "no_score"


def test_a_killed_trainer_stays_resumable_and_says_what_its_log_says(run: RunDirectory) -> None:
    said = failure(ended(run, OUT_OF_MEMORY, -9))
    assert said["code"] == "trainer_killed" and said["code"] in RESUMABLE
    assert "SIGKILL" in said["line"] and "CUDA out of memory" in said["line"]


def test_a_killed_trainer_whose_log_says_nothing_may_have_run_out_of_memory(run: RunDirectory) -> None:
    assert "SIGKILL. Memory may have run out." in failure(ended(run, "▶ Setting up data...", -9))["line"]


def test_a_full_disk_goes_before_whatever_it_led_to(run: RunDirectory) -> None:
    said = failure(ended(run, UNKNOWN, 1, lost_lines=3))
    assert said["code"] == "disk_full" and "prune" in said["advice"]


def test_a_full_disk_is_seen_in_the_last_lines_when_the_traceback_was_lost(run: RunDirectory) -> None:
    said = failure(ended(run, "RuntimeError: [enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0", -6))
    assert said["code"] == "disk_full" and "unexpected pos" in said["line"]


def test_a_stalled_training_that_had_printed_an_error_quotes_it(run: RunDirectory) -> None:
    record = ended(run, OUT_OF_MEMORY, -15, Reason.STALLED)
    said = failure(record)
    assert (record.state, said["code"]) == (RunState.STALLED, "stalled")
    assert "no new step" in said["line"] and "CUDA out of memory" in said["line"] and "micro batch" in said["advice"]


@pytest.mark.parametrize(("loss", "code"), [("nan", "nan_loss"), ("inf", "nan_loss"), ("0.5", None)])
def test_a_training_that_ends_with_a_loss_that_is_no_number_has_failed(run: RunDirectory, loss: str, code: str) -> None:
    checkpoint(run)
    record = ended(run, STEP % loss, 0)
    assert (record.failure["code"] if record.failure else None) == code


def test_what_an_earlier_attempt_printed_is_not_the_reason_of_this_one(run: RunDirectory) -> None:
    workers = "\n".join(f"(DTensorPolicyWorker pid=7) {line}" for line in OUT_OF_MEMORY.split("\n"))
    died = UNKNOWN.rpartition("\n")[0] + "\nray.exceptions.ActorDiedError: The actor died unexpectedly."
    assert failure(ended(run, f"{workers}\n{died}", 1))["code"] == "gpu_out_of_memory"
    run.update(state=RunState.QUEUED, ended=None, failure=None)
    assert failure(ended(run, died, 1))["code"] == "worker_died"
