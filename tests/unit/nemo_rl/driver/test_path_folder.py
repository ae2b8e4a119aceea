"""The folder on NeMo-RL's PYTHONPATH, in real interpreters that have none of our packages."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.environment import DRIVER_PATH

NVML = """
    def get_free_memory_bytes(device_idx):
        import os
        if os.environ.get("NVML") == "answers":
            return 7.0
        raise RuntimeError(f"Failed to get free memory for device {device_idx}: Not Supported")
"""

_TORCH = """
    class cuda:
        is_available = staticmethod(lambda: {available})
        get_device_properties = staticmethod(lambda index: type("P", (), {{"is_integrated": {integrated}}}))
"""
NO_GPU = _TORCH.format(available=False, integrated=0)
UNIFIED = _TORCH.format(available=True, integrated=1)
DISCRETE = _TORCH.format(available=True, integrated=0)
ASK = "import nemo_rl.utils.nvml as nvml; print(nvml.get_free_memory_bytes(0))"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return tmp_path / "bare" / "bin" / "python"


def run(python: Path, code: str, *path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (DRIVER_PATH, *path))), **variables}
    command = [str(python), "-c", textwrap.dedent(code)]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, cwd="/")


def write(folder: Path, **modules: str) -> Path:
    """Modules by their name, with their text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def nemo_rl_with(torch: str, folder: Path) -> Path:
    """A package laid out as NeMo-RL's, whose NVML has no answer unless NVML=answers, beside this torch."""
    write(folder / "nemo_rl", __init__="")
    write(folder / "nemo_rl" / "utils", __init__="", nvml=NVML)
    return write(folder, torch=torch)


def test_our_package_is_there_and_nothing_that_is_installed_beside_it(bare: Path) -> None:
    done = run(
        bare,
        """
        import sys
        import nvtrader_rl_dagster.nemo_rl.driver.registration, nvtrader_rl_dagster.rewards
        import nvtrader_rl_dagster.nemo_rl.driver.reward_model, nvtrader_rl_dagster.nemo_rl.driver.free_memory
        from nvtrader_rl_dagster.nemo_rl.driver.scoring import Scoring
        print(Scoring.from_config({"rewards": {"length_sane": 2}}))
        print(sorted(n for n in sys.modules if n.split(".")[0] not in sys.stdlib_module_names and "nvtrader" not in n))
        try:
            import orjson
        except ImportError:
            print("no orjson")
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "rewards: length_sane x 2 (weighted mean)",
        "['__main__', 'sitecustomize']",
        "no orjson",
    ]


def test_the_hidden_sitecustomize_is_loaded_and_may_hide_another(bare: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", sitecustomize="import sys; sys.other_was_here = True")
    done = run(bare, "import sys, sitecustomize; print(sys.other_was_here, sitecustomize.__file__)", other)
    assert done.stdout.split() == ["True", str(other / "sitecustomize.py")]
    broken = write(tmp_path / "broken", sitecustomize="raise OSError('broken')")
    done = run(bare, "import nvtrader_rl_dagster; print('still here')", broken)
    assert done.stdout == "still here\n" and "broken" in done.stderr


def test_a_folder_with_ours_in_front_of_it_hides_nothing_behind_itself(bare: Path, tmp_path: Path) -> None:
    first = write(tmp_path / "first", sitecustomize="import sys; sys.first = True")
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (first, DRIVER_PATH)))}
    code = "import sys; print(sys.first); import nvtrader_rl_dagster"
    command = [str(bare), "-c", code]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, cwd="/")
    assert done.stdout == "True\n" and "No module named 'nvtrader_rl_dagster'" in done.stderr, "it was hidden itself"


def test_nvml_without_an_answer_is_replaced_by_the_unified_memory_and_says_so_once(bare: Path, tmp_path: Path) -> None:
    nemo_rl_with(NO_GPU, tmp_path)
    code = """
        from nemo_rl.utils.nvml import get_free_memory_bytes
        first, second = get_free_memory_bytes(0), get_free_memory_bytes(0)
        print(first > 2**20, second > 2**20)
        kib = [int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable:")]
        print(abs(second - 1024 * kib[0]) < 2**30)
    """
    done = run(bare, code, tmp_path)
    line, *rest = done.stdout.splitlines()
    assert line.startswith("[nvtrader] NVML cannot report the free memory of device 0 (Failed to get free memory for")
    assert "taking MemAvailable of the unified memory, now" in line and rest == ["True True", "True"], done.stderr


@pytest.mark.parametrize("torch", [NO_GPU, UNIFIED, DISCRETE])
def test_an_nvml_that_answers_is_left_alone(bare: Path, tmp_path: Path, torch: str) -> None:
    assert run(bare, ASK, nemo_rl_with(torch, tmp_path), NVML="answers").stdout == "7.0\n"


def test_a_gpu_that_shares_the_memory_of_the_machine_gets_the_fall_back(bare: Path, tmp_path: Path) -> None:
    assert "taking MemAvailable" in run(bare, ASK, nemo_rl_with(UNIFIED, tmp_path)).stdout


def test_a_gpu_with_memory_of_its_own_still_fails(bare: Path, tmp_path: Path) -> None:
    done = run(bare, ASK, nemo_rl_with(DISCRETE, tmp_path))
    assert done.stdout == "" and "Failed to get free memory for device 0: Not Supported" in done.stderr
