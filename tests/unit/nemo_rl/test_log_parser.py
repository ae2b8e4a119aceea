"""Numbers out of a training log: train and validation never mixed, nothing reported that was not measured."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.log_parser import LogParser, Metric, clean

RULE = "=" * 25


def parse(text: str) -> tuple[LogParser, list[Metric]]:
    parser = LogParser()
    metrics = [metric for line in text.split("\n") for metric in parser.feed(line)]
    return parser, [*metrics, *parser.close()]


def value(metrics: list[Metric], step: int, split: str, name: str = "loss") -> float | None:
    (found,) = [m for m in metrics if (m.step, m.split, m.name) == (step, split, name)]
    return found.value


def step(number: int, total: int, loss: str = "0.6931", extra: str = "") -> str:
    return (
        f"\n{RULE} Step {number}/{total} {RULE}\n▶ Taking a training step...\n{extra}"
        f"\n📊 Training Results:\n  • loss: {loss}\n  • accuracy: 0.0000\n  • num_valid_samples: 2.0000\n"
        "\n⏱️  Timing:\n  • Total step time: 1.50s\n  • policy_training: 1.40s (93.3%)\n"
    )


def validation(at: int, loss: str = "0.6645", samples: str = "16.0000", name: str = "default") -> str:
    return (
        f"▶ Starting validation at step {at} for `{name}` set..\n\n"
        f"📊 Validation Results for `{name}` set:\n    • Validation loss: {loss}\n"
        f"    • Validation accuracy: 1.0000\n    • Validation num_valid_samples: {samples}\n"
        f"\n  ⏱️  Validation Timing for `{name}` set:\n    • Total validation time: 1.29s\n"
    )


def test_validation_and_training_blocks_are_never_mixed() -> None:
    _, metrics = parse(step(1, 4, "0.6931", extra=validation(1)))
    assert value(metrics, 1, "validation") == 0.6645
    assert value(metrics, 1, "validation", "accuracy") == 1.0
    assert value(metrics, 1, "train") == 0.6931
    assert value(metrics, 1, "train", "accuracy") == 0.0


def test_steps_are_global_although_each_epoch_prints_them_from_one() -> None:
    text = "".join(
        f"\n{RULE} Epoch {epoch}/3 {RULE}\n" + "".join(step(n, 4, f"0.{epoch}{n}") for n in range(1, 5))
        for epoch in (1, 2, 3)
    )
    parser, metrics = parse(text)
    losses = [m for m in metrics if m.name == "loss"]
    assert [m.step for m in losses] == list(range(1, 13))
    assert losses[6].value == 0.23
    assert (parser.steps_seen, parser.steps_per_epoch, parser.epochs) == (12, 4, 3)


def test_a_resumed_log_takes_its_step_from_the_lines_that_print_it() -> None:
    text = f"\n{RULE} Epoch 1/1 {RULE}\n" + step(3, 6) + step(4, 6, extra="Saving checkpoint for step 104...\n")
    parser, metrics = parse(text + step(5, 6))
    assert [m.step for m in metrics if m.name == "loss"] == [3, 104, 105]
    assert parser.saved_steps == [104]


def test_several_validation_sets_keep_their_names() -> None:
    _, metrics = parse(validation(0, "0.7", name="alpha") + validation(0, "0.5", name="beta"))
    assert {m.set: m.value for m in metrics if m.name == "loss"} == {"alpha": 0.7, "beta": 0.5}


def test_zero_valid_samples_is_no_measurement() -> None:
    _, metrics = parse(validation(0, "0.0000", samples="0.0000"))
    losses = [m for m in metrics if m.name in ("loss", "accuracy")]
    assert [(m.value, m.flag) for m in losses] == [(None, "no_valid_samples")] * 2


@pytest.mark.parametrize(("text", "flag"), [("nan", "nan"), ("inf", "inf"), ("-inf", "inf")])
def test_what_is_no_number_becomes_null_and_a_flag(text: str, flag: str) -> None:
    _, metrics = parse(step(1, 1, text))
    assert [(m.value, m.flag) for m in metrics if m.name == "loss"] == [(None, flag)]


@pytest.mark.parametrize(("text", "number"), [("1e-05", 1e-5), ("-0.3986", -0.3986), ("0", 0.0)])
def test_numbers_parse_exactly(text: str, number: float) -> None:
    _, metrics = parse(step(1, 1, text))
    assert value(metrics, 1, "train") == number


def test_a_run_without_a_step_has_none() -> None:
    parser, metrics = parse("SETUP COMPLETE\n" + validation(0, "0.6931") + f"\n{RULE} Epoch 1/1 {RULE}\n")
    assert parser.ready and parser.steps_seen == 0 and parser.saved_steps == []
    assert value(metrics, 0, "validation") == 0.6931


def test_a_log_that_breaks_off_inside_a_block_keeps_what_it_printed() -> None:
    parser, metrics = parse(step(1, 4) + f"\n{RULE} Step 2/4 {RULE}\n📊 Training Results:\n  • loss: 0.5")
    assert value(metrics, 2, "train") == 0.5
    assert parser.end is None


@pytest.mark.parametrize(
    ("last", "loss"),
    [("0.6931", [0.6931]), ("1.0e-05", [1e-5]), ("nan", [None]), ("0.693", []), ("0", []), ("-", []), ("", [])],
)
def test_a_number_that_nothing_ends_counts_only_when_it_is_whole(last: str, loss: list[float | None]) -> None:
    parser, _ = parse(step(1, 4))
    for line in ("📊 Training Results:", "  • accuracy: 0.5"):
        parser.feed(line)
    metrics = [*parser.feed_last(f"  • loss: {last}"), *parser.close()]
    assert [m.value for m in metrics if m.name == "loss"] == loss
    assert [m.value for m in metrics if m.name == "accuracy"] == [0.5]


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("Max number of steps has been reached, stopping training early", "max_steps"),
        ("Timeout has been reached, stopping training early", "timeout"),
    ],
)
def test_the_end_says_why(line: str, end: str) -> None:
    assert parse(step(1, 1) + line)[0].end == end


def test_the_tail_shows_what_a_terminal_would() -> None:
    assert clean("Generating: 10%|█ |\rGenerating: 100%|██|\n") == "Generating: 100%|██|"
    assert clean("\x1b[34mINFO\x1b[0m x\x1b[A") == "INFO x"


def test_other_bullets_and_worker_lines_are_no_metrics() -> None:
    text = step(1, 1).replace("  • num_valid", "  • Training FLOPS: 0.01 TFLOPS (0.01 TFLOPS per rank)\n  • num_valid")
    _, metrics = parse("(Worker pid=7) 📈 loss: 3\n" + text)
    assert {m.name for m in metrics} == {"loss", "accuracy", "num_valid_samples", "step_seconds"}


@pytest.mark.real_data
def test_recorded_nemo_rl_logs(real_data: Path) -> None:
    logs = real_data / "nemo_rl_logs"
    ok, metrics = parse((logs / "dpo_8_pairs_ok.log").read_text(encoding="utf-8"))
    assert (ok.steps_seen, ok.step, ok.saved_steps, ok.end) == (4, 4, [2, 4], "max_steps")
    first = value(metrics, 0, "validation")
    assert first is not None and abs(first - math.log(2)) < 5e-5
    assert value(metrics, 4, "validation") == 0.6882 and value(metrics, 4, "train") == 0.6899

    resumed, metrics = parse((logs / "dpo_resumed_second_epoch_ok.log").read_text(encoding="utf-8"))
    assert [m.step for m in metrics if m.name == "loss" and m.split == "train"] == [5, 6]
    assert resumed.saved_steps == [6]

    nothing, _ = parse((logs / "dpo_fewer_rows_than_a_batch_exit0.log").read_text(encoding="utf-8"))
    assert nothing.ready and nothing.steps_seen == 0
