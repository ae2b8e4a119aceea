"""`nvtrader-rl log`: one JSON object for programs, tables for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from nvtrader_rl_dagster.cli import app
from tests import printed_logs as printed

TEXT = (
    "📊 Using checkpoint directory: /c\n"
    + printed.READY
    + printed.validation(0, *(f"Validation {b}" for b in printed.dpo_bullets(0.6931)), name="default")
    + printed.epoch(1)
    + printed.step(1, 2, "loss: nan", "accuracy: 0.5000")
    + printed.step(2, 2, "loss: 0.5000", "accuracy: 1.0000", before=printed.saving(2))
    + printed.MAX_STEPS
)


def run(*arguments: str, stdin: bytes | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["log", *arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def parsed(*arguments: str, stdin: bytes | None = None) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(run("parse", *arguments, "--algo", "dpo", "--json", stdin=stdin), parse_constant=refuse)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.log"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_the_object_has_exactly_these_keys(log: Path) -> None:
    report = parsed(str(log))
    assert set(report) == {"steps", "validations", "checkpoints", "flags", "end", "failure"}
    assert [set(row) for row in report["steps"]] == [{"step", "metrics"}] * 2
    assert [set(row) for row in report["validations"]] == [{"step", "set", "metrics"}]
    assert report["checkpoints"] == [{"step": 2, "path": "/c/step_2"}]
    assert report["steps"][0]["metrics"]["loss"] is None and report["steps"][1]["metrics"]["loss"] == 0.5
    assert [flag["flag"] for flag in report["flags"]] == ["nan"]
    assert report["end"] == "max_steps" and report["failure"] is None


def test_standard_input_and_the_log_of_a_run_say_the_same(log: Path, tmp_path: Path) -> None:
    rows = [{"n": n, "ts": "2026-01-01T00:00:00Z", "text": line} for n, line in enumerate(TEXT.split("\n"), 1)]
    stored = tmp_path / "log.jsonl"
    stored.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows) + b'{"n":99,"ts":"2026')
    assert parsed("-", stdin=TEXT.encode()) == parsed(str(stored)) == parsed(str(log))


def test_scalars_are_read_from_the_folder_beside_the_log_of_a_run(log: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "events.out.tfevents.1").write_bytes(b"\x04" + bytes(11) + b"\x0f\xff\xff\xff" + bytes(4))
    stored = tmp_path / "log.jsonl"
    stored.write_bytes(log.read_bytes())
    assert "is no TensorBoard event file" in " ".join(run("parse", str(stored), code=2).split())
    assert parsed(str(log))["end"] == "max_steps"


def test_people_read_tables(log: Path) -> None:
    output = run("parse", str(log), "--algo", "dpo")
    assert "Steps (2 of 2)" in output and "nan" in output and "0.6931" in output
    assert "checkpoint of step 2: /c/step_2" in output and "end: max_steps" in output


def test_a_failure_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(printed.READY, encoding="utf-8")
    assert parsed(str(path))["failure"]["code"] == "zero_steps"
    assert "zero_steps" in run("parse", str(path))


def test_a_known_failure_has_its_name_and_remedy(tmp_path: Path) -> None:
    text = TEXT.removesuffix(printed.MAX_STEPS) + (
        'Traceback (most recent call last):\n  File "nemo_rl/algorithms/dpo.py", line 696, in dpo_train\n'
        "    raise ValueError(\nValueError: Metric loss not found in val metrics\n"
    )
    path = tmp_path / "run.log"
    path.write_text(text, encoding="utf-8")
    report = parsed(str(path))
    assert report["end"] == "error" and report["failure"]["code"] == "metric_name_unknown"
    assert report["failure"]["line"] == "ValueError: Metric loss not found in val metrics"
    assert report["failure"]["advice"]
    assert parsed("-", stdin=text.encode()) == report


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["parse", "missing.log"], "missing.log cannot be read"),
        (["parse", "-", "--algo", "dqo"], "--algo dqo is none of"),
        (["parse", "-", "--log-dir", "missing"], "--log-dir missing is no folder"),
        (["samples", "missing.jsonl"], "missing.jsonl"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], said: str) -> None:
    assert said in " ".join(run(*arguments, stdin=b"", code=2).split())


def test_samples_are_the_best_and_the_worst(tmp_path: Path) -> None:
    path = tmp_path / "val_data_step4.jsonl"
    rows = [{"content": [f"answer [{n}]"], "rewards": [n / 10], "idx": n} for n in range(9)]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    found = json.loads(run("samples", str(path), "--limit", "3", "--json"))
    assert [s["index"] for s in found["samples"]] == [8, 7, 0]
    assert (found["total"], round(found["mean_reward"], 6)) == (9, 0.4)
    assert "answer [8]" in run("samples", str(path))


def test_every_metric_is_explained() -> None:
    assert "preference_loss" in run("names")
    assert "accuracy" in json.loads(run("names", "--json"))["names"]
