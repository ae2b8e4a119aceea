"""Which trainer is taken, and what is said about it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl import backends
from nvtrader_rl_dagster.nemo_rl.backends import Backend, BackendError, choose_trainer


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of NeMo-RL, set by environment."""
    for name in ("run_dpo.py", "run_grpo.py"):
        (tmp_path / "examples" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "examples" / name).touch()
    monkeypatch.setenv(backends.SOURCE_VARIABLE, str(tmp_path))
    monkeypatch.setenv(backends.PYTHON_VARIABLE, sys.executable)
    return tmp_path


def test_auto_takes_nemo_rl_when_it_and_a_gpu_are_there(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "gpu_seen", lambda: True)
    trainer = choose_trainer(Backend.AUTO, "dpo")
    assert (trainer.name, trainer.cwd) == ("nemo_rl", tree) and "a GPU" in trainer.why
    command = trainer.command("dpo", Path("/x/config.yaml"))
    assert command == [sys.executable, "-u", "examples/run_dpo.py", "--config", "/x/config.yaml"]


def test_auto_falls_back_to_the_embedded_trainer_and_says_why(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "gpu_seen", lambda: False)
    assert choose_trainer(Backend.AUTO, "dpo").why.startswith("local, the embedded trainer: no NVIDIA GPU is seen")
    monkeypatch.setenv(backends.PYTHON_VARIABLE, str(tree / "python"))
    assert f"{tree}/python is no interpreter" in choose_trainer(Backend.AUTO, "dpo").why
    monkeypatch.setenv(backends.SOURCE_VARIABLE, str(tree / "elsewhere"))
    trainer = choose_trainer(Backend.AUTO, "dpo")
    assert "elsewhere/examples/run_dpo.py is not there" in trainer.why
    assert trainer.cwd is None and "nvtrader_rl_dagster.local_trainer" in trainer.command("dpo", Path("c.yaml"))


def test_what_was_asked_for_is_never_replaced(tree: Path) -> None:
    assert choose_trainer(Backend.NEMO_RL, "grpo").command("grpo", Path("c"))[2] == "examples/run_grpo.py"
    assert choose_trainer(Backend.LOCAL, "dpo").name == "local"
    with pytest.raises(BackendError, match=r"run_sft\.py is not there; set NVTRADER_NEMORL_SRC"):
        choose_trainer(Backend.NEMO_RL, "sft")
    with pytest.raises(BackendError, match="the embedded trainer has no grpo; it has: dpo"):
        choose_trainer(Backend.LOCAL, "grpo")
    with pytest.raises(BackendError, match="unknown algorithm 'dppo'"):
        choose_trainer(Backend.AUTO, "dppo")


def test_ppo_is_nemo_rl_s_grpo_script(tree: Path) -> None:
    assert choose_trainer(Backend.NEMO_RL, "ppo").command("ppo", Path("c"))[2] == "examples/run_grpo.py"
