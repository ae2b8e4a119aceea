"""What a trainer sees of our environment. The parent is a plain mapping here; `tests/process` starts real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.environment import (
    DRIVER_PATH,
    embedded_environment,
    nemo_rl_environment,
    withheld,
)

TREE = Path("/opt/nemo-rl")
PYTHON = "/opt/nemo-rl/.venv/bin/python"
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s",
    "GITHUB_TOKEN": "s",
    "OPENAI_API_KEY": "s",
    "NVIDIA_API_KEY": "s",
    "NGC_API_KEY": "s",
    "HF_TOKEN": "s",
    "HUGGING_FACE_HUB_TOKEN": "s",
    "WANDB_API_KEY": "s",
    "MLFLOW_TRACKING_PASSWORD": "s",
    "UV_INDEX_INTERNAL_PASSWORD": "s",
    "UV_PUBLISH_TOKEN": "s",
    "VLLM_API_KEY": "s",
    "NVTRADER_RL_STORE": "postgresql+psycopg://nv:s@db/feedback",
    "DAGSTER_PG_PASSWORD": "s",
    "DATABASE_URL": "mysql://root:s@db/x",
    "UV_INDEX_URL": "https://ci:s@wheels.example/simple",
    "HTTPS_PROXY": "http://me:s@proxy.example:3128",
    "MLFLOW_TRACKING_URI": "https://me:s@mlflow.example",
    "SSH_AUTH_SOCK": "/run/agent",
}
HARMLESS = {
    "HOME": "/home/anna",
    "LC_ALL": "de_DE.UTF-8",
    "TMPDIR": "/scratch",
    "CUDA_VISIBLE_DEVICES": "0",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
    "TORCH_CUDA_ARCH_LIST": "12.1",
    "TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas",
    "NCCL_DEBUG": "INFO",
    "HF_HOME": "/models",
    "UV_CACHE_DIR": "/scratch/uv",
    "NRL_VIRTUAL_CLUSTER_MAX_RETRIES": "2",
    "NEMO_RL_PY_EXECUTABLES_SYSTEM": "1",
    "HTTP_PROXY": "http://proxy.example:3128",
    "no_proxy": "localhost",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_memory_usage_threshold": "0.98",
}
MISLEADING = {
    "PYTHONPATH": "/dagster/site",
    "PYTHONHOME": "/usr",
    "PYTHONSTARTUP": "/x",
    "RAY_ADDRESS": "10.0.0.1:6379",
    "RAY_JOB_ID": "01000000",
    "RAY_TMPDIR": "/x",
    "VIRTUAL_ENV": "/dagster/venv",
    "CONDA_PREFIX": "/miniconda3",
    "UV_PYTHON": "3.11",
    "UV_PROJECT_ENVIRONMENT": "/dagster/venv",
    "UV_ENV_FILE": "/dagster/.env",
    "WANDB_SERVICE": "2-99-tcp-localhost-1",
    "SLURM_JOB_ID": "5",
    "ANYTHING": "else",
}


def test_only_the_allow_list_and_what_we_decide_arrives() -> None:
    parent = {"PATH": "/usr/bin", **SECRETS, **HARMLESS, **MISLEADING}
    environment = nemo_rl_environment(parent, PYTHON, TREE)
    assert {name: environment.pop(name) for name in HARMLESS} == HARMLESS
    assert environment == {
        "PATH": f"/opt/nemo-rl/.venv/bin{os.pathsep}/usr/bin",
        "PYTHONPATH": str(DRIVER_PATH),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "UV_PYTHON_PREFERENCE": "system",
        "UV_PYTHON": PYTHON,
        "RAY_USAGE_STATS_ENABLED": "0",
        "NEMO_RL_VENV_DIR": "/opt/nemo-rl/venvs",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "offline",
    }


def test_the_embedded_trainer_gets_the_same_list_and_our_own_python_path() -> None:
    parent = {"PATH": "/usr/bin", "NVTRADER_RL_CACHE": "/cache", **SECRETS, **HARMLESS, **MISLEADING}
    environment = embedded_environment(parent, threads=2)
    assert {name: environment.pop(name) for name in HARMLESS} == HARMLESS
    assert environment == {
        "PATH": "/usr/bin",
        "PYTHONPATH": "/dagster/site",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": "2",
        "NVTRADER_RL_CACHE": "/cache",
    }


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_passed_only_when_it_is_named(name: str) -> None:
    assert name not in nemo_rl_environment(SECRETS, PYTHON, TREE)
    assert nemo_rl_environment(SECRETS, PYTHON, TREE, [name])[name] == SECRETS[name]
    by_variable = {**SECRETS, "NVTRADER_NEMORL_PASS_ENV": f" OTHER, {name} "}
    found = nemo_rl_environment(by_variable, PYTHON, TREE)
    assert found[name] == SECRETS[name] and not (set(SECRETS) - {name}) & set(found)


def test_what_is_kept_back_of_the_allow_list_is_said() -> None:
    parent = {**SECRETS, **HARMLESS}
    assert withheld(parent) == [
        "HF_TOKEN",
        "HTTPS_PROXY",
        "MLFLOW_TRACKING_URI",
        "NVIDIA_API_KEY",
        "UV_INDEX_INTERNAL_PASSWORD",
        "UV_INDEX_URL",
        "UV_PUBLISH_TOKEN",
        "VLLM_API_KEY",
    ]
    assert "HF_TOKEN" not in withheld(parent, ["HF_TOKEN"])


def test_the_hub_and_wandb_are_reached_only_when_the_user_says_so() -> None:
    allowed = {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0", "WANDB_API_KEY": "k", "WANDB_MODE": "online"}
    found = nemo_rl_environment(allowed, PYTHON, TREE, ["WANDB_API_KEY"])
    assert (found["HF_HUB_OFFLINE"], found["HF_DATASETS_OFFLINE"], found["WANDB_MODE"]) == ("0", "0", "online")
    assert nemo_rl_environment(allowed, PYTHON, TREE)["WANDB_MODE"] == "offline"
    assert nemo_rl_environment({"HF_HUB_OFFLINE": ""}, PYTHON, TREE)["HF_HUB_OFFLINE"] == "1"
    assert embedded_environment(allowed, 0)["HF_HUB_OFFLINE"] == "1", "it takes folders only"


def test_the_environment_of_the_interpreter_is_named_as_its_kind_wants(tmp_path: Path) -> None:
    python = str(tmp_path / "bin" / "python")
    assert not {"VIRTUAL_ENV", "CONDA_PREFIX"} & set(nemo_rl_environment(MISLEADING, python, TREE))
    (tmp_path / "conda-meta").mkdir()
    assert nemo_rl_environment(MISLEADING, python, TREE)["CONDA_PREFIX"] == str(tmp_path)
    (tmp_path / "pyvenv.cfg").touch()
    found = nemo_rl_environment(MISLEADING, python, TREE)
    assert found["VIRTUAL_ENV"] == str(tmp_path) and "CONDA_PREFIX" not in found


def test_a_users_own_folders_stand_behind_ours_on_the_path() -> None:
    found = nemo_rl_environment({"NVTRADER_NEMORL_PYTHONPATH": "/desk/rewards:/desk/more"}, PYTHON, TREE)
    assert found["PYTHONPATH"].split(os.pathsep) == [str(DRIVER_PATH), "/desk/rewards", "/desk/more"]
    assert nemo_rl_environment({"NEMO_RL_VENV_DIR": "/opt/ray_venvs"}, PYTHON, TREE)["NEMO_RL_VENV_DIR"] == (
        "/opt/ray_venvs"
    )


def test_what_the_bridge_decides_cannot_be_passed() -> None:
    with pytest.raises(ValueError, match=r"PYTHONPATH cannot be passed .* NVTRADER_NEMORL_PYTHONPATH"):
        nemo_rl_environment({}, PYTHON, TREE, ["PYTHONPATH"])
    with pytest.raises(ValueError, match=r"RAY_ADDRESS cannot be passed to a trainer, .*; leave it out"):
        embedded_environment({"NVTRADER_NEMORL_PASS_ENV": "RAY_ADDRESS"}, 0)
