"""The reason of a failure is found among warnings, other processes' lines, chains of exceptions and shutdown noise."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from diagnosis_excerpts import RAYLET, from_worker, in_worker, raised

from nvtrader_rl_dagster.nemo_rl.diagnosis.diagnose import Diagnosis, diagnose

STEP = "========================= Step 3/9 ========================="
RESULTS = "📊 Training Results:\n  • loss: 0.6931"
WARNINGS = from_worker(
    "/opt/venv/megatron/core/optimizer/__init__.py:24: UserWarning: Transformer Engine and Apex are not installed. "
    "Falling back to Torch optimizers.\n"
    "/opt/venv/torch/cuda/__init__.py:283: UserWarning: \n"
    "    Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.\n"
    "    Minimum and Maximum cuda capability supported by this version of PyTorch is\n"
    "    (8.0) - (12.0)"
)
SHUTDOWN = (
    "Exception ignored in: <function Policy.__del__ at 0xfffdd89cb2e0>\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/nemo-rl/nemo_rl/models/policy/lm_policy.py", line 100, in __del__\n'
    "PythonFinalizationError: preexec_fn not supported at interpreter shutdown"
)
TIE = raised("NotImplementedError: Ties are not supported yet.")
UNKNOWN = raised("ValueError: Unknown precision: fp4", "nemo_rl/models/x.py:build:raise ValueError(")
DIED = raised("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def write(log: Path, *texts: str) -> None:
    """As the supervisor does; a later call goes on with the numbers."""
    lines = [line for text in texts for line in text.split("\n")]
    first = len(log.read_bytes().splitlines()) + 1 if log.exists() else 1
    with log.open("ab") as file:
        for n, line in enumerate(lines, first):
            file.write(orjson.dumps({"n": n, "ts": "2026-01-01T00:00:00.000Z", "text": line}) + b"\n")


def diagnosed(log: Path, *texts: str) -> Diagnosis:
    write(log, *texts)
    return diagnose(log)


def code(found: Diagnosis) -> str | None:
    return found.failure.code if found.failure else None


def test_warnings_before_the_error_are_not_the_reason(log: Path) -> None:
    found = diagnosed(log, WARNINGS, TIE)
    assert (code(found), found.line) == ("tied_row", "NotImplementedError: Ties are not supported yet.")


def test_warnings_alone_say_nothing(log: Path) -> None:
    assert diagnosed(log, WARNINGS) == Diagnosis(None, "")


def test_what_python_prints_while_it_shuts_down_is_not_the_reason(log: Path) -> None:
    assert code(diagnosed(log, TIE, SHUTDOWN)) == "tied_row"


def test_the_same_error_as_the_last_exception_of_the_driver_is_not_the_reason_either(log: Path) -> None:
    noise = raised("PythonFinalizationError: preexec_fn not supported at interpreter shutdown")
    assert code(diagnosed(log, TIE, noise)) == "tied_row"


def test_only_the_shutdown_error_sends_the_reader_further_up(log: Path) -> None:
    found = diagnosed(log, "an error that nobody understands", SHUTDOWN)
    assert code(found) == "python_finalization"
    assert found.failure is not None and "further up" in found.failure.remedy


def test_an_unknown_error_is_quoted_and_not_the_noise_behind_it(log: Path) -> None:
    assert diagnosed(log, UNKNOWN, SHUTDOWN, "bye") == Diagnosis(None, "ValueError: Unknown precision: fp4")


def test_an_unknown_error_is_not_explained_by_something_else_that_went_wrong(log: Path) -> None:
    busy = "Failed to connect to GCS at address 192.0.2.2:6399 within 5 seconds."
    assert diagnosed(log, busy, UNKNOWN) == Diagnosis(None, "ValueError: Unknown precision: fp4")


def test_of_an_unknown_error_in_a_worker_the_inner_line_is_quoted(log: Path) -> None:
    assert diagnosed(log, in_worker("ValueError: Unknown precision: fp4")).line == "ValueError: Unknown precision: fp4"


def test_an_error_before_a_later_step_did_not_end_the_training(log: Path) -> None:
    handled = from_worker(raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert code(diagnosed(log, handled, STEP, RESULTS, TIE)) == "tied_row"
    assert diagnosed(log, STEP, RESULTS) == Diagnosis(None, "")


def test_where_the_driver_only_says_that_a_worker_is_gone_the_workers_error_counts(log: Path) -> None:
    out_of_memory = from_worker(raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."))
    found = diagnosed(log, STEP, out_of_memory, DIED)
    assert code(found) == "gpu_out_of_memory"
    assert found.line == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_the_earliest_of_two_errors_of_workers_is_the_reason(log: Path) -> None:
    first = from_worker("*** SIGBUS received at time=1796063016 on cpu 1 ***")
    second = from_worker(raised("torch.OutOfMemoryError: CUDA out of memory."))
    assert code(diagnosed(log, first, second, DIED)) == "shared_memory"


def test_a_count_of_zero_killed_workers_is_no_lack_of_memory(log: Path) -> None:
    text = "node_manager.cc:3277: %d Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed"
    assert code(diagnosed(log, from_worker(text % 0, **RAYLET), DIED)) == "worker_died"
    log.unlink()
    assert code(diagnosed(log, from_worker(text % 3, **RAYLET), DIED)) == "out_of_memory"


def test_lines_of_a_worker_between_those_of_the_drivers_traceback_are_passed_over(log: Path) -> None:
    lines = in_worker("KeyError: 'global_valid_toks'").split("\n")
    mixed = [part for line in lines for part in (line, from_worker("KeyError: 'completions'\nLoading weights: 100%"))]
    found = diagnosed(log, *mixed)
    assert (code(found), found.line) == ("all_rows_masked", "KeyError: 'global_valid_toks'")


def test_lines_behind_a_progress_bar_and_repeated_ones_are_a_workers(log: Path) -> None:
    bar = "Initializing lm_policy workers:   0%|          | 0/1 [00:00<?, ?worker/s]"
    repeated = "Fatal Python error: Bus error\x1b[32m [repeated 3x across cluster]\x1b[0m"
    found = diagnosed(log, bar + from_worker(repeated), DIED)
    assert (code(found), found.line) == ("shared_memory", "Fatal Python error: Bus error")


def test_text_that_is_trained_on_is_no_error_of_the_training(log: Path) -> None:
    quoted = "how do I fix KeyError: 'completions', No space left on device, or CUDA out of memory?"
    sample = f"│ {quoted} │\nuser: {quoted}\nassistant: torch.OutOfMemoryError: CUDA out of memory. Tried"
    found = diagnosed(log, "▶ Starting validation at step 0", sample, UNKNOWN)
    assert found == Diagnosis(None, "ValueError: Unknown precision: fp4")


def test_the_first_reason_of_a_chain_counts_and_its_most_telling_line_is_shown(log: Path) -> None:
    chain = "\n\nThe above exception was the direct cause of the following exception:\n\n"
    full_disk = raised("OSError: [Errno 28] No space left on device")
    assert (
        code(diagnosed(log, full_disk + chain + raised("KeyError: 'completions'", "nemo_rl/data/x.py:f:x")))
        == "disk_full"
    )


def test_a_key_of_the_configuration_is_told_from_a_field_of_a_row(log: Path) -> None:
    key = 'nemo_rl/algorithms/dpo.py:setup:val = master_config["dpo"]["context"]'
    assert code(diagnosed(log, raised("KeyError: 'context'", key))) == "missing_config_key"
    log.unlink()
    assert (
        code(diagnosed(log, raised("KeyError: 'context'", "nemo_rl/data/processors.py:f:datum['context']")))
        == "trl_rows"
    )


def test_a_message_of_several_lines_is_shown_as_far_as_it_says_what_to_change(log: Path) -> None:
    error = (
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for MasterConfig\n"
        "policy.precision\n"
        "  Field required [type=missing, input_value={}, input_type=dict]\n"
        "    For further information visit the manual\n"
        "dpo.seed\n"
        "  Field required [type=missing, input_value={}, input_type=dict]"
    )
    line = diagnosed(log, raised(error)).line
    assert "policy.precision Field required" in line and "manual" not in line


def test_what_an_earlier_attempt_printed_does_not_count(log: Path) -> None:
    write(log, STEP, DIED, from_worker("Fatal Python error: Bus error"))
    second = len(log.read_bytes().splitlines()) + 1
    write(log, "▶ Setting up data...", TIE)
    assert code(diagnose(log, second)) == "tied_row"
    assert diagnose(log, second + 20) == Diagnosis(None, "")


def test_an_error_that_ended_a_thread_is_not_what_ended_the_driver(log: Path) -> None:
    thread = "Exception in thread collector:\n" + raised("KeyError: 'completions'", "nemo_rl/data/x.py:f:x")
    assert diagnosed(log, UNKNOWN, thread) == Diagnosis(None, "ValueError: Unknown precision: fp4")


def test_a_log_that_is_not_there_or_empty_or_cut_off_says_what_it_can(log: Path) -> None:
    assert diagnose(log) == Diagnosis(None, "")
    log.touch()
    assert diagnose(log) == Diagnosis(None, "")
    write(log, TIE)
    log.write_bytes(log.read_bytes() + b'{"n": 99, "ts": "2026", "te')
    assert code(diagnose(log)) == "tied_row"


def test_the_reason_in_a_process_below_a_worker_is_found(log: Path) -> None:
    error = raised("ValueError: No available memory for the cache blocks.").replace("\n", "\n(EngineCore pid=177) ")
    ended = in_worker("RuntimeError: Engine core initialization failed. See root cause above.")
    assert code(diagnosed(log, from_worker(f"(EngineCore pid=177) {error}"), ended)) == "vllm_memory"


def test_a_very_long_line_is_read_and_shown_in_part(log: Path) -> None:
    line = diagnosed(log, "x" * 300_000, raised("ValueError: Metric " + "y" * 9000 + " not found in val metrics")).line
    assert len(line) == 500 and line.endswith("…")


@pytest.mark.real_data
def test_recorded_logs_get_their_reason_and_those_without_an_error_none(real_data: Path) -> None:
    folder = real_data / "nemo_rl_logs"
    if not folder.is_dir():
        pytest.skip(f"no recorded logs at {folder}")
    found = {file.name: diagnose(file) for file in sorted(folder.glob("*.log"))}
    bad = found.pop("dpo_wrong_metric_name_fails_at_first_save.log")
    assert (code(bad), bad.line) == ("metric_name_unknown", "ValueError: Metric loss not found in val metrics")
    assert len(found) >= 9 and set(found.values()) == {Diagnosis(None, "")}
