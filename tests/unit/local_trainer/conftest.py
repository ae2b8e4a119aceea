"""Fixtures: one cache with the tiny model, a working directory with pairs, and DPO in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainer_helpers import CONFIG, merged, rank_row, write_rows

if find_spec("torch") is None or find_spec("transformers") is None:  # the extra 'local' is not installed
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _one_thread_and_one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import torch

    before = os.environ.get("NVTRADER_RL_CACHE")
    os.environ["NVTRADER_RL_CACHE"] = str(tmp_path_factory.mktemp("models"))
    torch.set_num_threads(1)
    yield
    if before is None:
        del os.environ["NVTRADER_RL_CACHE"]
    else:
        os.environ["NVTRADER_RL_CACHE"] = before


@pytest.fixture(autouse=True)
def _smallest_floats_again() -> Iterator[None]:
    """The trainer lets its process round the smallest floats to zero; other tests of this process want them."""
    import torch

    yield
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def tiny_folder(_one_thread_and_one_cache: None) -> Path:
    from nvtrader_rl_dagster.local_trainer.models import resolve_model

    return resolve_model("builtin:tiny")


@pytest.fixture
def tiny(tiny_folder: Path) -> Any:
    """A fresh copy of the tiny model."""
    from nvtrader_rl_dagster.local_trainer.models import load_model

    return load_model(str(tiny_folder))


@pytest.fixture(scope="session")
def tokenizer(tiny_folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_folder)


@pytest.fixture
def workspace(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory with 8 training and 4 validation pairs."""
    write_rows(tmp_path / "train.jsonl", [rank_row(number) for number in range(8)])
    write_rows(tmp_path / "val.jsonl", [rank_row(number) for number in range(100, 104)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def train(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run DPO in this process with dotted keys changed; the stdout."""
    from nvtrader_rl_dagster.local_trainer.dpo import run

    def call(changes: dict[str, Any] | None = None) -> str:
        path = workspace / "run.yaml"
        path.write_text(yaml.safe_dump(merged(CONFIG, changes or {})))
        capsys.readouterr()
        run(path, [])
        return capsys.readouterr().out

    return call
