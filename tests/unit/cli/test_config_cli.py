"""`nvtrader-rl config` prints a YAML that can be handed to NeMo-RL."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.configs import OPTIONS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["config", *arguments])


def config(*arguments: str) -> dict:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Seven training rows and a blank line, and two held-out rows."""
    train, validation = tmp_path / "train.jsonl", tmp_path / "held_out.jsonl"
    train.write_text("{}\n" * 4 + "\n" + "{}\n" * 3)
    validation.write_text("{}\n" * 2)
    return str(train), str(validation)


@pytest.mark.parametrize("version", ["0.6.0", "0.7.0"])
@pytest.mark.parametrize("algo", ALGOS)
def test_every_algorithm_prints_its_sections_without_any_data(algo: str, version: str) -> None:
    assert set(config(algo, "--nemo-rl", version)) == set(ALGOS[algo].release(version).sections)


def test_what_is_only_an_example_is_said_on_top() -> None:
    said = run("dpo").stdout
    assert "# path/to/model is an example: name the model with --model" in said
    assert "1024 and 128 rows: name yours with --train and --validation" in said


def test_named_files_decide_batch_and_steps_and_the_notes_stay_out_of_the_yaml(files: tuple[str, str]) -> None:
    train, validation = files
    result = run("dpo", "--train", train, "--validation", validation, "--model", "/models/base")
    printed = yaml.safe_load(result.stdout)
    assert printed["data"]["train"]["data_path"] == train
    assert printed["data"]["validation"]["data_path"] == validation
    assert printed["policy"]["train_global_batch_size"] == 7
    assert printed["policy"]["model_name"] == printed["policy"]["tokenizer"]["name"] == "/models/base"
    assert "an example" not in result.stdout and "shrunk" not in result.stdout
    assert "batch shrunk from 16 to 7 pairs" in result.stderr


def test_values_are_typed_as_yaml_types_them() -> None:
    sets = ("--set", "policy.max_grad_norm=1e-1", "--set", "logger.wandb.name=7b", "--set", "dpo.max_num_steps=3")
    printed = config("dpo", *sets, "--option", "tensorboard=true", "--option", "learning_rate=1e-6")
    assert printed["policy"]["max_grad_norm"] == 0.1
    assert printed["logger"]["wandb"] == {"name": "7b"}
    assert printed["dpo"]["max_num_steps"] == 3
    assert printed["logger"]["tensorboard_enabled"] is True
    assert printed["policy"]["optimizer"]["kwargs"]["lr"] == 1e-6


def test_a_set_that_gives_an_option_wins_over_the_default() -> None:
    assert config("sft", "--set", "policy.model_name=/models/a")["policy"]["tokenizer"]["name"] == "/models/a"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dpoo"], "no algorithm 'dpoo'"),
        (["dpo", "--nemo-rl", "0.5.0"], "0.5.0"),
        (["dpo", "--set", "dpo.sede=1"], "dpo.seed"),
        (["dpo", "--set", "dpo.seed"], "write it as name=value"),
        (["dpo", "--set", "dpo.seed=[1"], "no YAML"),
        (["dpo", "--option", "bheta=1"], "the nearest is beta"),
        (["dpo", "--option", "beta=-1"], "--option beta"),
        (["dpo", "--train", "/no/such.jsonl"], "/no/such.jsonl"),
        (["dpo", "--train", "/no/such.txt"], ".jsonl"),
        (["dpo", "--validation", "/no/such.jsonl"], "needs --train"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_on_standard_output(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and result.stdout == ""
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("algo", ALGOS)
def test_the_options_are_listed_with_what_they_mean(algo: str) -> None:
    said = run(algo, "--list-options").stdout
    for name, field in OPTIONS[algo].model_fields.items():
        assert f"{name} (default" in said and str(field.description) in said


@pytest.mark.parametrize(
    ("name", "text"),
    [("b.json", '[{"problem": "1"}, {"problem": "2"}]'), ("b.csv", 'problem,solution\n"a\nb",1\nc,2\n')],
)
def test_a_benchmark_is_counted_whatever_its_format(tmp_path: Path, name: str, text: str) -> None:
    from nvtrader_rl_dagster.nemo_rl.configs.row_counts import count_rows

    file = tmp_path / name
    file.write_text(text)
    assert count_rows(file) == 2
    assert config("eval", "--train", str(file))["data"]["dataset_name"] == str(file)
