"""Our driver inside NeMo-RL's own interpreter: what it registers, and what it changes for GB10."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, Target
from nvtrader_rl_dagster.nemo_rl.environment import PATH_VARIABLE, nemo_rl_environment
from tests.contract.rows import data_for
from tests.contract.trees import Tree

HERE = Path(__file__).parent
OWN_CODE = HERE / "own_code"
REWARDS = {"length_sane": 1.0, "desk.even_letters": 3.0}


def in_nemo_rl(python: Path, tree: Tree, *arguments: str, path: Path = OWN_CODE, **variables: str) -> Any:
    """Run NeMo-RL's Python in its tree, in the environment that the bridge makes."""
    environment = nemo_rl_environment({**os.environ, PATH_VARIABLE: str(path)}, str(python), tree.folder)
    command = [str(python), "-u", *arguments]
    return subprocess.run(
        command, check=False, cwd=tree.folder, env={**environment, **variables}, capture_output=True, text=True
    )


def config_file(folder: Path, tree: Tree, model: Path, **env: Any) -> Path:
    options = OPTIONS["grpo"](base_model=str(model), max_sequence_tokens=256, max_new_tokens=64, rewards=REWARDS)
    data = data_for("grpo", folder)
    config = BUILDERS["grpo"](options, data, folder / "c", folder / "l", Target(version=tree.version)).config
    config["env"] |= env
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return file


def run_driver(python: Path, tree: Tree, config: Path) -> Any:
    script = str(HERE / "registered.py")
    return in_nemo_rl(python, tree, "-m", "nvtrader_rl_dagster.nemo_rl.driver", script, "--config", str(config), "+x=1")


def test_environments_are_registered_and_the_script_runs_as_python_runs_it(
    tree: Tree, nemo_rl_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    config = config_file(tmp_path, tree, tiny_model, desk={"class_path": "desk.DeskEnvironment"})
    done = run_driver(nemo_rl_python, tree, config)
    said = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert said, done.stdout[-2000:] + done.stderr[-2000:]
    found = orjson.loads(said[0].removeprefix("FOUND "))
    script = str(HERE / "registered.py")
    assert found["argv"] == [script, "--config", str(config), "+x=1"]
    assert found["file"] == script and str(HERE) in found["path"]
    assert found["environments"] == {
        "nvtrader": "nvtrader_rl_dagster.nemo_rl.driver.environment.RewardEnvironment",
        "desk": "desk.DeskEnvironment",
    }
    assert found["pythons"] == [True, True], "workers of its own Python, without a virtual environment to build"
    assert "[nvtrader] rewards: length_sane x 1, desk.even_letters x 3 (weighted mean)" in done.stdout
    question = "What moved bonds 0 today?"
    assert found["info"]["prompt_messages"] == [{"role": "user", "content": question}]
    assert orjson.loads(found["info"]["ground_truth"]) == {"facts": ["2 percent"]}
    assert question in found["shown"] and found["shown"] != question, "the log has the chat template in it"


def test_what_cannot_be_loaded_ends_the_run_before_anything_is_started(
    tree: Tree, nemo_rl_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    config = config_file(tmp_path, tree, tiny_model, desk={"class_path": "desk.NoSuchEnvironment"})
    done = run_driver(nemo_rl_python, tree, config)
    assert done.returncode == 1 and "FOUND" not in done.stdout
    assert "env.desk.class_path: 'desk.NoSuchEnvironment' cannot be loaded" in done.stderr
    assert "put its folder into NVTRADER_NEMORL_PYTHONPATH" in done.stderr


ASK = "import nemo_rl.utils.nvml as n; print('free', n.get_free_memory_bytes(0)); print(n.get_device_uuid(0))"


@pytest.fixture
def fake_nvml(tmp_path: Path) -> Path:
    shutil.copy(HERE / "fake_nvml.py", tmp_path / "pynvml.py")
    return tmp_path


def test_its_nvml_module_falls_back_to_the_unified_memory(tree: Tree, nemo_rl_python: Path, fake_nvml: Path) -> None:
    done = in_nemo_rl(nemo_rl_python, tree, "-c", ASK, path=fake_nvml)
    line, free, uuid = done.stdout.splitlines()
    assert "device 0 (global index: 0): Not Supported); taking MemAvailable of the unified memory" in line, done.stderr
    assert float(free.split()[1]) > 2**20 and uuid == "GPU-0", "and nothing else is changed"


def test_an_nvml_that_answers_is_believed(tree: Tree, nemo_rl_python: Path, fake_nvml: Path) -> None:
    done = in_nemo_rl(nemo_rl_python, tree, "-c", ASK, path=fake_nvml, NVML_FREE="4711")
    assert done.stdout.splitlines() == ["free 4711", "GPU-0"]


def test_without_any_nvml_the_fall_back_says_so(tree: Tree, nemo_rl_python: Path) -> None:
    done = in_nemo_rl(nemo_rl_python, tree, "-c", ASK.partition(";")[0] + "; print(n.get_free_memory_bytes(0) > 0)")
    said = done.stdout.splitlines()
    assert "(Failed to initialize NVML: " in said[0] and said[1] == "True", done.stderr
