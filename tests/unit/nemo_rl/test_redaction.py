"""No secret stays in a checkpoint's configuration, and everything else does."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_rl_dagster.nemo_rl.redaction import REDACTED, is_secret_name, redact, redact_file

#: Keys of NeMo-RL's configurations that only look like secrets.
HARMLESS: dict[str, Any] = {
    "policy": {
        "model_name": "/models/token-key",
        "tokenizer": {"name": "/models/token-key", "chat_template": "{% set token=eos_token %}{{ key=1 }}"},
        "generation": {"max_new_tokens": 512, "stop_token_ids": None, "_pad_token_id": 2},
        "sequence_packing": {"train_mb_tokens": 1024, "logprob_mb_tokens": 2048},
        "dtensor_cfg": {"env_vars": None},
    },
    "loss_fn": {"token_level_loss": True},
    "data": {"prompt_key": "prompt", "chosen_key": "chosen", "input_key": "input", "problem_key": "problem"},
    "tokenizer": {"eos_token": "</s>", "bos_token": "<s>", "pad_token": "</s>"},
    "env": {"math": {"num_workers": 8}},
}
WORDS = ("TOKEN", "KEY", "SECRET", "PASSWORD")
LETTERS = string.ascii_letters + string.digits
parts = st.text(string.ascii_uppercase, max_size=6)
secret_names = st.builds(lambda a, word, b: f"{a}_{word}_{b}".strip("_"), parts, st.sampled_from(WORDS), parts)
values = st.text(LETTERS + "+/=-_.", min_size=12, max_size=40)
places = st.sampled_from(["env_vars", "list", "text", "key", "url"])


def leaked(name: str, value: str, place: str) -> dict[str, Any]:
    """A configuration that holds the value of an environment variable."""
    where: dict[str, Any] = {
        "env_vars": {},
        "list": {"args": ["--token", value]},
        "text": {"command": f"run --with {value} --fast"},
        "key": {name: value},
        "url": {"tracking_uri": f"https://user:{value}@host/path"},
    }[place]
    return {"policy": {"dtensor_cfg": {"env_vars": {name: value, "NCCL_DEBUG": "WARN"}, **where}}, "logger": where}


@given(secret_names, values, places)
def test_no_value_of_a_secret_looking_variable_survives(name: str, value: str, place: str) -> None:
    assert is_secret_name(name)
    clean = yaml.safe_dump(redact(leaked(name, value, place), {}))
    assert value not in clean and value not in str(yaml.safe_load(clean))


@given(secret_names, values, st.sampled_from(["list", "text", "key", "url"]))
def test_nor_does_that_of_our_own_environment(name: str, value: str, place: str) -> None:
    config = leaked(name, value, place)
    del config["policy"]
    assert value not in yaml.safe_dump(redact(config, {name: value}))


def test_what_a_training_reads_is_unchanged() -> None:
    assert not is_secret_name("TOKENIZERS_PARALLELISM")
    assert redact(HARMLESS, {}) == HARMLESS
    assert redact(HARMLESS, {"TOKENIZERS_PARALLELISM": "false", "API_KEY_MODE": "none", "MY_KEY": "512"}) == HARMLESS


def test_env_vars_become_null_wherever_they_are() -> None:
    config = {"policy": {"dtensor_cfg": {"env_vars": {"A": "1"}}}, "teacher": [{"megatron_cfg": {"env_vars": {}}}]}
    assert redact(config, {}) == {
        "policy": {"dtensor_cfg": {"env_vars": None}},
        "teacher": [{"megatron_cfg": {"env_vars": None}}],
    }


@pytest.mark.parametrize(
    "key", ["wandb_api_key", "anthropic_api_key", "hf_token", "HF_TOKEN", "token", "password", "dbPassword", "SSH_KEY"]
)
def test_a_key_that_opens_something_loses_its_value(key: str) -> None:
    assert redact({"logger": {key: "short"}}, {}) == {"logger": {key: REDACTED}}
    assert redact({"logger": {key: None}}, {}) == {"logger": {key: None}}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("HF_TOKEN=abc python run.py", f"HF_TOKEN={REDACTED} python run.py"),
        ("hf_" + "a1" * 15, REDACTED),
        ("key nvapi-" + "x" * 20 + " here", f"key {REDACTED} here"),
        ("sqlite:///data/mlflow.db", "sqlite:///data/mlflow.db"),
        ("postgresql://me:pw@db/x", f"postgresql://{REDACTED}@db/x"),
        ("-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\nrest", f"{REDACTED}\nrest"),
    ],
)
def test_a_value_that_looks_like_a_secret_is_cut_out(text: str, left: str) -> None:
    assert redact({"anything": [text]}, {}) == {"anything": [left]}


def test_the_path_of_the_model_stays_though_a_variable_names_it(tmp_path: Path) -> None:
    config = {"policy": {"model_name": str(tmp_path)}}
    assert redact(config, {"KEY_FOLDER": str(tmp_path)}) == config


def test_a_file_is_rewritten_in_place_and_only_when_it_must(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(leaked("HF_TOKEN", "s3cret-value-123", "text")))
    file.chmod(0o640)
    assert redact_file(file)
    assert "s3cret" not in file.read_text() and file.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [file]
    before = file.stat().st_mtime_ns
    assert not redact_file(file) and file.stat().st_mtime_ns == before


def test_a_file_that_was_cut_off_is_emptied(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("env_vars:\n  HF_TOKEN: s3cret-value-123\n  X: [1, 2")
    assert redact_file(file)
    assert yaml.safe_load(file.read_text()) is None and "s3cret" not in file.read_text()
