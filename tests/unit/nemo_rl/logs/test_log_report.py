"""A whole log: what was saved, how it ended, what was no measurement (cases O31 to O35)."""

from __future__ import annotations

import pytest

from nvtrader_rl_dagster.nemo_rl.logs.report import LogReport, read_log
from tests import printed_logs as printed

WORKER = "\x1b[36m(DTensorPolicyWorker[rank=0] pid=16792)\x1b[0m "
TRACEBACK = 'Traceback (most recent call last):\n  File "run_dpo.py", line 104, in <module>\n    main()\n'


def read(text: str | bytes, algo: str = "dpo") -> LogReport:
    return read_log([text.encode() if isinstance(text, str) else text], algo)


def losses(report: LogReport) -> list[tuple[int, float | None]]:
    return [(row["step"], row["metrics"]["loss"]) for row in report.steps]


def dpo_step(number: int, total: int, loss: float = 0.6, before: str = "") -> str:
    return printed.step(number, total, *printed.dpo_bullets(loss), before=before)


def test_a_validation_without_a_step_is_a_run_that_trained_nothing() -> None:
    bullets = [f"Validation {b}" for b in printed.dpo_bullets(0.6931)]
    report = read(printed.READY + printed.validation(0, *bullets, name="default") + printed.epoch(1))
    assert report.steps == [] and report.checkpoints == []
    assert report.failure is not None and report.failure["code"] == "zero_steps"
    assert report.validations[0]["metrics"]["loss"] == 0.6931


def test_zero_valid_samples_leave_no_number() -> None:
    bullets = [f"Validation {b}" for b in printed.dpo_bullets(0.0, samples=0.0)]
    report = read(printed.validation(0, *bullets, name="default"))
    metrics = report.validations[0]["metrics"]
    assert metrics.pop("num_valid_samples") == 0.0 and metrics.pop("validation_seconds") == 1.25
    assert set(metrics.values()) == {None}
    assert {flag["flag"] for flag in report.flags} == {"no_valid_samples"} and len(report.flags) == len(metrics)


def test_a_validation_that_read_no_answer_leaves_no_accuracy() -> None:
    bullets = ("Accuracy: 0.0000", "Average response length: 0.0 tokens", "Samples processed: 0")
    metrics = read(printed.validation(3, *bullets), "grpo").validations[0]["metrics"]
    assert metrics["accuracy"] is None and metrics["avg_length"] is None and metrics["num_samples"] == 0.0


@pytest.mark.parametrize(("text", "flag"), [("nan", "nan"), ("inf", "inf"), ("-inf", "inf")])
def test_no_number_is_null_with_a_flag(text: str, flag: str) -> None:
    report = read(printed.epoch(1) + printed.step(1, 1, f"loss: {text}", "accuracy: 1e-05", "sft_loss: -0.3986"))
    assert report.steps[0]["metrics"]["loss"] is None
    assert report.steps[0]["metrics"]["accuracy"] == 1e-5 and report.steps[0]["metrics"]["sft_loss"] == -0.3986
    assert report.flags == [{"step": 1, "split": "train", "set": None, "name": "loss", "flag": flag}]


def test_workers_and_progress_bars_between_and_behind_bullets_change_nothing() -> None:
    clean = printed.epoch(1) + dpo_step(1, 1, 0.25)
    noisy = clean.replace(
        "  • accuracy", f"Generating: 10%|█ |\rGenerating: 100%|██|\n{WORKER}  • loss: 99.0\n  • accuracy"
    )
    noisy = noisy.replace("  • sft_loss: 0.0000\n", f"  • sft_loss: 0.0000{WORKER}📊 Training Results:\n\n")
    noisy = noisy.replace(
        "\n📊", f"\n{WORKER}📊 Training Results:\n│   • loss: 98.0 │\n{WORKER}Saving checkpoint for step 9...\n\n📊"
    )
    assert noisy.count("99.0") == 1 and read(noisy) == read(clean)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("  •", "\x1b[1m  •").replace("📊", "\x1b[0m\x1b[34m📊"),
        lambda text: text.replace("📊", "Loading: 50%|█ |\rLoading: 100%|██|\r📊"),
        lambda text: text.replace("📊", "\x1b[A\x1b[2K\t📊"),
    ],
    ids=["crlf", "colours", "progress bar", "cursor"],
)
def test_terminal_decoration_changes_nothing(change) -> None:
    clean = printed.epoch(1) + dpo_step(1, 2, before=printed.saving(1)) + dpo_step(2, 2, 0.5) + printed.MAX_STEPS
    assert change(clean) != clean and read(change(clean)) == read(clean)


def test_what_a_progress_bar_overwrote_is_not_there() -> None:
    report = read(
        printed.epoch(1)
        + printed.header(1, 1)
        + printed.results("loss: 0.5").replace("  • loss", "  • loss: 9.0\rGenerating: 100%|██|\n  • loss")
    )
    assert losses(report) == [(1, 0.5)]


def test_bytes_that_are_no_utf8_cost_only_their_own_line() -> None:
    text = (printed.epoch(1) + dpo_step(1, 1)).encode()
    broken = text.replace("  • accuracy".encode(), b"\xff\xfe\xf0\x9f garbage\n" + "  • accuracy".encode())
    assert broken != text and read(broken) == read(text)


def test_a_cut_last_line_is_set_aside() -> None:
    text = printed.epoch(1) + printed.header(1, 4) + printed.results("loss: 0.6931", "accuracy: 0.7500")
    whole = text.removesuffix("\n")
    assert read(whole).steps[0]["metrics"] == {"loss": 0.6931, "accuracy": 0.75}
    for cut in range(1, 10):
        assert read(whole[:-cut]).steps[0]["metrics"] == {"loss": 0.6931}, whole[:-cut][-20:]


@pytest.mark.parametrize(
    ("ending", "end"),
    [
        (printed.MAX_STEPS, "max_steps"),
        (printed.TIMEOUT, "timeout"),
        ("", "epochs"),
        (TRACEBACK + "ValueError: no\n", "error"),
    ],
)
def test_how_it_ended(ending: str, end: str) -> None:
    report = read(printed.epoch(1, 2) + dpo_step(1, 1) + printed.epoch(2, 2) + dpo_step(1, 1) + ending)
    assert report.end == end and [step for step, _ in losses(report)] == [1, 2]


def test_an_end_before_the_last_epoch_is_unknown() -> None:
    report = read(printed.epoch(1, 2) + dpo_step(1, 2) + dpo_step(2, 2))
    assert report.end == "unknown" and report.failure is None
    begun = read(printed.epoch(1) + dpo_step(1, 2) + printed.header(2, 2))
    assert begun.end == "unknown"


def test_an_error_names_its_last_line() -> None:
    report = read(
        printed.epoch(1) + dpo_step(1, 4) + TRACEBACK + "ValueError: Metric loss not found in val metrics\nINFO x\n"
    )
    assert report.end == "error" and report.failure is not None
    assert report.failure["line"] == "ValueError: Metric loss not found in val metrics"


def test_an_error_of_a_ray_worker_names_what_the_worker_raised() -> None:
    text = (
        f"{TRACEBACK}ray.exceptions.RayTaskError(KeyError): \x1b[36mray::DTensorPolicyWorker.train()\x1b[39m (pid=1)\n"
        f'  File "dtensor.py", line 1, in train\n    x["valid"]\n{WORKER}Traceback (most recent call last):\n'
        "KeyError: 'global_valid_toks'\n"
    )
    report = read(printed.epoch(1) + printed.header(1, 4) + text)
    assert report.failure is not None and report.failure["line"] == "KeyError: 'global_valid_toks'"


def test_the_last_of_chained_exceptions_counts() -> None:
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    report = read(TRACEBACK + "KeyError: 'a'\n" + chain + TRACEBACK + "RuntimeError: b\n")
    assert report.failure is not None and report.failure["line"] == "RuntimeError: b"


@pytest.mark.parametrize(
    "announced", ["Exception ignored in: <function f>", "--- Logging error ---", "Exception in thread T:"]
)
def test_a_traceback_that_ends_nothing_is_no_failure(announced: str) -> None:
    harmless = f"{announced}\n{TRACEBACK}ValueError: late\n"
    report = read(printed.epoch(1) + dpo_step(1, 1) + harmless)
    assert report.end == "epochs" and report.failure is None
    after = read(printed.epoch(1) + dpo_step(1, 1) + harmless + TRACEBACK + "OSError: real\n")
    assert after.failure is not None and after.failure["line"] == "OSError: real"


def test_an_exception_that_the_driver_survived_is_no_failure() -> None:
    report = read(printed.epoch(1) + TRACEBACK + "ValueError: validation\n" + dpo_step(1, 1) + printed.MAX_STEPS)
    assert report.end == "max_steps" and report.failure is None


def test_checkpoints_are_those_saved_and_kept() -> None:
    text = "📊 Using checkpoint directory: /runs/a b/ckpt\n" + printed.epoch(1)
    for number in range(1, 5):
        text += dpo_step(number, 4, before=printed.saving(number))
    text += "Removing checkpoint /runs/a b/ckpt/step_2 due to being outside top-3\n"
    report = read(text)
    assert report.checkpoints == [{"step": n, "path": f"/runs/a b/ckpt/step_{n}"} for n in (1, 3, 4)]


def test_a_save_that_failed_is_no_checkpoint() -> None:
    begun = printed.epoch(1) + dpo_step(1, 4, before=printed.saving(1)) + printed.header(2, 4) + printed.saving(2)
    assert [c["step"] for c in read(begun + TRACEBACK + "OSError: disk\n").checkpoints] == [1]
    assert [c["step"] for c in read(begun).checkpoints] == [1]


def test_batches_that_dynamic_sampling_gives_up_are_no_steps() -> None:
    given_up = "Generation sample buffer size: 3 is smaller than train_prompts_size: 8. Processed 1 batches so far.\n"
    epoch = printed.header(1, 3) + given_up + printed.step(1, 3, "Loss: 0.1") + printed.header(2, 3) + given_up
    report = read(printed.epoch(1, 2) + epoch + printed.epoch(2, 2) + epoch, "dapo")
    assert [step for step, _ in losses(report)] == [1, 2]
    assert report.end == "epochs"


def test_a_run_resumed_with_other_batches_gets_all_its_steps_right_once_one_is_printed() -> None:
    text = printed.epoch(1) + dpo_step(3, 6) + dpo_step(4, 6, before=printed.saving(104)) + dpo_step(5, 6)
    assert [step for step, _ in losses(read(text))] == [103, 104, 105]


def test_a_relaunch_in_the_same_log_replaces_what_the_first_launch_did_beyond_its_checkpoint() -> None:
    first = printed.READY + printed.epoch(1)
    first += "".join(dpo_step(n, 9, 0.1, before=printed.saving(n) if n == 2 else "") for n in range(1, 6))
    second = printed.READY + printed.epoch(1) + dpo_step(3, 9, 0.2) + dpo_step(4, 9, 0.2, before=printed.saving(4))
    report = read(first + TRACEBACK + "KeyboardInterrupt\n" + second)
    assert losses(report) == [(1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2)]
    assert [c["step"] for c in report.checkpoints] == [2, 4] and report.failure is None


def test_the_end_of_an_earlier_launch_is_not_the_end() -> None:
    first = printed.READY + printed.epoch(1) + dpo_step(1, 1) + printed.MAX_STEPS
    second = printed.READY + printed.epoch(2, 2) + printed.header(1, 1)
    assert read(first + second).end == "unknown"


def test_a_checkpoint_that_was_removed_and_saved_again_is_there() -> None:
    removing = "Removing checkpoint /c/step_1 due to being outside top-1\n"
    first = printed.READY + printed.epoch(1) + dpo_step(1, 3, before=printed.saving(1)) + removing
    again = printed.READY + printed.epoch(1) + dpo_step(1, 3, before=printed.saving(1))
    assert read(first).checkpoints == [] and [c["step"] for c in read(first + again).checkpoints] == [1]


def test_a_validation_whose_first_line_is_lost_belongs_to_the_step_that_runs() -> None:
    first, second = (printed.validation(at, f"Validation loss: {at}.5", name="a") for at in (1, 2))
    text = printed.epoch(1) + dpo_step(1, 2, before=first) + dpo_step(2, 2, before=second.partition("\n")[2])
    found = [(row["step"], row["metrics"]["loss"]) for row in read(text).validations]
    assert found == [(1, 1.5), (2, 2.5)]


def test_an_empty_log_trained_nothing() -> None:
    for text in ("", "\n", "  "):
        report = read(text)
        assert report.failure is not None and report.failure["code"] == "zero_steps" and report.end == "unknown"
