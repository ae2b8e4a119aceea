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
    assert choose_trainer(Backend.NEMO_RL, "grpo").source == tree
    assert choose_trainer(Backend.LOCAL, "dpo").name == "local"
    with pytest.raises(BackendError, match=r"run_sft\.py is not there; set NVTRADER_NEMORL_SRC"):
        choose_trainer(Backend.NEMO_RL, "sft")
    with pytest.raises(BackendError, match="the embedded trainer has no grpo; it has: dpo"):
        choose_trainer(Backend.LOCAL, "grpo")
    with pytest.raises(BackendError, match="unknown algorithm 'dppo'"):
        choose_trainer(Backend.AUTO, "dppo")


@pytest.mark.parametrize("algo", ["grpo", "ppo", "dapo", "gdpo"])
def test_rewards_are_registered_by_our_driver_before_nemo_rl_s_script(algo: str, tree: Path) -> None:
    command = choose_trainer(Backend.NEMO_RL, algo).command(algo, Path("/x/config.yaml"))
    driver = ["-u", "-m", "nvtrader_rl_dagster.nemo_rl.driver"]
    assert command == [sys.executable, *driver, "examples/run_grpo.py", "--config", "/x/config.yaml"]


def test_the_script_is_that_of_the_release_in_the_tree(tree: Path) -> None:
    (tree / "nemo_rl").mkdir()
    (tree / "nemo_rl" / "package_info.py").write_text("MAJOR = 0\nMINOR = 7\nPATCH = 0\n")
    with pytest.raises(BackendError, match=r"run_ppo\.py is not there"):
        choose_trainer(Backend.NEMO_RL, "ppo")
    (tree / "examples" / "run_ppo.py").touch()
    assert "examples/run_ppo.py" in choose_trainer(Backend.NEMO_RL, "ppo").command("ppo", Path("c"))
    (tree / "nemo_rl" / "package_info.py").write_text("MAJOR = 0\nMINOR = 4\nPATCH = 1\n")
    with pytest.raises(BackendError, match=r"says NeMo-RL 0\.4\.1; supported are"):
        choose_trainer(Backend.NEMO_RL, "ppo")


def test_an_interpreter_is_found_from_here_and_not_from_the_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "here").mkdir()
    (tree / "here" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tree / "here")
    trainer = choose_trainer(Backend.NEMO_RL, "dpo", python="./python")
    assert trainer.python == str(tree / "here" / "python"), "absolute, and the link itself"


def test_what_a_trainer_may_see_is_asked_for_and_what_it_does_not_see_is_said(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    trainer = choose_trainer(Backend.NEMO_RL, "dpo")
    assert "HF_TOKEN (name in NVTRADER_NEMORL_PASS_ENV what is needed)" in trainer.why
    assert "hf_secret" not in trainer.why and "HF_TOKEN" not in trainer.environment(0)
    trainer = choose_trainer(Backend.NEMO_RL, "dpo", pass_environment=["HF_TOKEN"])
    assert "HF_TOKEN" not in trainer.why and trainer.environment(0)["HF_TOKEN"] == "hf_secret"
    embedded = choose_trainer(Backend.LOCAL, "dpo", pass_environment=["HF_TOKEN"])
    assert embedded.environment(0)["HF_TOKEN"] == "hf_secret"
    with pytest.raises(BackendError, match="RAY_ADDRESS cannot be passed"):
        choose_trainer(Backend.AUTO, "dpo", pass_environment=["RAY_ADDRESS"])
