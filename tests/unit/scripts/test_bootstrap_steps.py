"""Each step of the bootstrap alone: what it does, when there is nothing to do, and what it says when it cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from script_host import REPO, TORCH_OF_GB10, Host, git

DTENSOR = "nemo_rl.models.policy.workers.dtensor_policy_worker.DTensorPolicyWorker"
MEGATRON = "nemo_rl.models.policy.workers.megatron_policy_worker.MegatronPolicyWorker"


# host


@pytest.mark.parametrize(
    ("gone", "state", "message", "remedy"),
    [
        ("git", {}, "git is not installed", "apt-get install git"),
        ("conda", {}, "neither conda nor uv", "pip install uv"),
        ("", {"machine": "armv7l"}, "this is Linux armv7l", "GPU machine"),
        ("", {"free_kb": "20000000"}, "19 GB are free", "NVTRADER_NEMORL_MIN_GB"),
    ],
)
def test_a_host_that_lacks_something_is_refused_at_once(
    host: Host, gone: str, state: dict[str, str], message: str, remedy: str
) -> None:
    host.take_away(gone or "nothing")
    for name, text in state.items():
        host.say(name, text)
    output = host.bootstrap(code=1)
    assert f"error: {message}" in output and remedy in output.splitlines()[-1]
    assert not host.source.exists()


def test_megatron_needs_more_room(host: Host) -> None:
    host.say("free_kb", str(60 * 1024 * 1024))
    host.bootstrap("--only", "host")
    assert "80 GB are needed" in host.bootstrap("--only", "host", "--with-megatron", code=1)
    host.bootstrap("--only", "host", "--with-megatron", NVTRADER_NEMORL_MIN_GB="50")


# source and submodules


def test_the_pinned_commit_is_checked_out_and_nothing_older_is_fetched(host: Host) -> None:
    host.bootstrap("--only", "source")
    assert git(host.source, "rev-parse", "HEAD") == host.commit
    assert git(host.source, "rev-list", "--count", "--all") == "1"


def test_an_unreachable_repository_is_an_error_that_names_proxy_and_mirror(host: Host) -> None:
    output = host.bootstrap("--only", "source", code=1, NVTRADER_NEMORL_URL=str(host.root / "nowhere"))
    assert "https_proxy" in output and "NVTRADER_NEMORL_URL" in output


def test_another_commit_or_tag_is_taken_when_the_variable_names_it(host: Host) -> None:
    host.with_source()
    host.bootstrap("--only", "source", NVTRADER_NEMORL_COMMIT="v0.7.0")
    assert "MINOR = 7" in (host.source / "nemo_rl/package_info.py").read_text()
    host.forget_calls()
    assert "ok       source" in host.bootstrap("--only", "source", NVTRADER_NEMORL_COMMIT="v0.7.0")
    assert not host.calls("git", "fetch")
    host.bootstrap("--only", "source")
    assert git(host.source, "rev-parse", "HEAD") == host.commit


def test_a_tree_with_changed_files_is_not_touched(host: Host) -> None:
    host.with_source()
    changed = host.source / "examples/run_dpo.py"
    changed.write_text("mine")
    output = host.bootstrap("--only", "source", code=1, NVTRADER_NEMORL_COMMIT="v0.7.0")
    assert "has changed files" in output and changed.read_text() == "mine"


def test_a_folder_that_is_no_checkout_is_not_touched(host: Host) -> None:
    host.source.mkdir()
    (host.source / "notes.txt").write_text("mine")
    assert "is no git checkout" in host.bootstrap("--only", "source", code=1)
    assert [file.name for file in host.source.iterdir()] == ["notes.txt"]


def test_submodules_are_fetched_down_to_the_innermost(host: Host) -> None:
    host.bootstrap("--only", "source")
    assert "2 submodules are there" in host.bootstrap("--only", "submodules")
    assert (host.source / "3rdparty/Megatron-Bridge/3rdparty/Megatron-LM/megatron").exists()
    (update,) = host.calls("git", "update")
    assert {"--init", "--recursive", "--depth"} <= set(update)


def test_a_submodule_at_another_commit_is_put_back(host: Host) -> None:
    host.with_source()
    submodule = host.source / "3rdparty/Megatron-Bridge"
    wanted = git(submodule, "rev-parse", "HEAD")
    git(submodule, "commit", "-q", "--allow-empty", "-m", "other")
    assert "doing    submodules: 1 of 2" in host.bootstrap("--only", "submodules")
    assert git(submodule, "rev-parse", "HEAD") == wanted


# environment and package


@pytest.mark.parametrize("version", ["3.12.20", "3.13.9", "3.14.15"])
def test_an_environment_with_another_python_is_refused_and_kept(host: Host, version: str) -> None:
    host.with_package()
    (host.conda_python.parents[1] / "site/python_version").write_text(version + "\n")
    output = host.bootstrap("--only", "environment", code=1)
    assert f"is Python {version}; NeMo-RL needs 3.13.13" in output and "conda env remove -n nemo_rl" in output
    assert host.conda_python.exists()


def test_a_newer_patch_release_of_python_is_fine(host: Host) -> None:
    host.with_package()
    (host.conda_python.parents[1] / "site/python_version").write_text("3.13.15\n")
    assert "ok       environment: Python 3.13.15" in host.bootstrap("--only", "environment")


def test_an_interpreter_of_the_users_own_is_used_and_never_made(host: Host) -> None:
    own = host.environment_of(host.root / "my env")
    output = host.bootstrap("--only", "environment", NVTRADER_NEMORL_PYTHON=str(own))
    assert f"ok       environment: Python 3.13.13 at {own}" in output
    missing = host.bootstrap("--only", "environment", code=1, NVTRADER_NEMORL_PYTHON=str(host.root / "gone/python"))
    assert "unset it" in missing and not host.calls("conda", "create")


def test_an_environment_that_broke_off_is_made_again_by_uv(host: Host) -> None:
    host.put("uv")
    (host.source / ".venv/lib").mkdir(parents=True)
    host.bootstrap("--uv", "--only", "environment")
    assert (host.source / ".venv/bin/python").exists() and not (host.source / ".venv/lib").exists()


def placeholder(host: Host) -> Path:
    folder = host.conda_python.parents[1] / "site/nemo_rl.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: nemo-rl\nVersion: 0.0.0\n")
    return folder


def test_pypis_empty_placeholder_is_found_and_removed(host: Host) -> None:
    host.bootstrap("--only", "source,environment")
    folder = placeholder(host)
    assert "nemo-rl 0.0.0 is PyPI's empty placeholder" in host.bootstrap("--check", "--only", "placeholder", code=1)
    assert "ok       placeholder" in host.bootstrap("--only", "placeholder")
    assert not folder.exists()


def test_the_real_package_is_not_taken_for_the_placeholder(host: Host) -> None:
    host.with_package().forget_calls()
    assert "ok       placeholder" in host.bootstrap("--only", "placeholder")
    assert not host.calls("python", "uninstall")


def test_the_package_is_installed_editable_from_the_tree_and_never_by_name(host: Host) -> None:
    host.bootstrap("--only", "source,environment,package")
    (install,) = host.calls("python", "pip", "install")
    assert install[-2:] == ["-e", str(host.source)] and "nemo-rl" not in install


def test_the_package_is_installed_again_when_it_is_a_copy_or_of_another_commit(host: Host) -> None:
    host.with_package()
    origin = host.conda_python.parents[1] / "site/nemo_rl.dist-info/direct_url.json"
    origin.write_text(json.dumps({"url": host.source.as_uri(), "dir_info": {}}))
    assert "a copy without its sub-packages" in host.bootstrap("--only", "package")
    host.bootstrap("--only", "source", NVTRADER_NEMORL_COMMIT="v0.7.0")
    assert "at another commit" in host.bootstrap("--only", "package", NVTRADER_NEMORL_COMMIT="v0.7.0")
    assert len(host.calls("python", "pip", "install")) == 2


# torch


def test_blackwell_gets_torch_for_cuda_13_with_its_torchvision(gb10: Host) -> None:
    gb10.with_package()
    assert "torch 2.10.0+cpu is there; Blackwell needs 2.12.0+cu130" in gb10.bootstrap("--only", "torch")
    (install,) = gb10.calls("python", "--index-url")
    assert install[-3:] == ["https://download.pytorch.org/whl/cu130", "torch==2.12.0+cu130", "torchvision==0.27.0"]
    assert f"ok       torch: torch {TORCH_OF_GB10}" in gb10.bootstrap("--only", "torch")


@pytest.mark.parametrize("capability", ["9.0\n", "10.0\n9.0\n", "12.0\n"])
def test_an_older_gpu_keeps_the_release_but_gets_the_cuda_build(host: Host, capability: str) -> None:
    host.say("capability", capability)
    host.with_package()
    assert "nothing  torch: the GPU's capability" in host.bootstrap("--only", "torch")
    (install,) = host.calls("python", "--index-url")
    assert install[-1] == "torch==2.10.0+cu130"


def test_without_a_gpu_torch_stays_unless_forced(host: Host) -> None:
    host.with_package()
    assert "nothing  torch: no GPU is seen, so NeMo-RL's own torch stays; --force-torch" in host.bootstrap(
        "--only", "torch"
    )
    assert f"ok       torch: torch {TORCH_OF_GB10}" in host.bootstrap("--only", "torch", "--force-torch")


def test_torch_before_the_package_is_refused(gb10: Host) -> None:
    gb10.bootstrap("--only", "source,environment")
    assert "torch is not installed" in gb10.bootstrap("--check", "--only", "torch", code=1)


def test_capability_computes_on_the_gpu_and_names_what_to_do_when_torch_cannot(gb10: Host) -> None:
    gb10.with_package()
    failed = gb10.bootstrap("--only", "capability", code=1)
    assert "torch 2.10.0+cpu sees no GPU" in failed and "--only torch --force-torch" in failed
    gb10.bootstrap("--only", "torch")
    assert "computes on NVIDIA GB10 of capability 12.1" in gb10.bootstrap("--only", "capability")


# what is only explained, and the variables


def test_transformer_engine_is_a_note_and_never_installed(host: Host) -> None:
    host.with_package().forget_calls()
    assert "nothing  transformer-engine: 'Transformer Engine and Apex" in host.bootstrap("--only", "transformer-engine")
    assert not host.calls("python", "pip")


def test_finalization_points_further_up_in_the_log(host: Host) -> None:
    assert "nothing  finalization: 'PythonFinalizationError" in host.bootstrap("--only", "finalization")


def test_uv_is_installed_beside_the_interpreter_even_if_another_is_on_the_path(host: Host) -> None:
    host.put("uv")
    host.with_package()
    output = host.bootstrap("--only", "uv")
    assert (host.conda_python.parent / "uv").exists()
    assert f"UV_PYTHON_PREFERENCE=system UV_PYTHON={host.conda_python}" in output


def test_a_path_that_no_variables_file_can_hold_is_refused(host: Host) -> None:
    for variable in ("NVTRADER_NEMORL_SRC", "NEMO_RL_VENV_DIR", "NVTRADER_NEMORL_PYTHON"):
        output = host.bootstrap("--check", code=1, **{variable: str(host.root / "a$b")})
        assert "dollar sign" in output and f"set {variable} to" in output


def test_another_folder_of_worker_environments_is_among_the_variables(host: Host) -> None:
    host.with_package().bootstrap("--only", "uv", NEMO_RL_VENV_DIR=str(host.root / "other venvs"))
    assert f'NEMO_RL_VENV_DIR="{host.root}/other venvs"' in (host.repo / "third_party/nemo-rl.env").read_text()


# our own bridge

GOOD_YAML = "data:\n  train:\n    dataset_name: PreferenceDataset\n"
GOOD_ROW = '{"context":[],"completions":[{"rank":0,"completion":[]}]}\n'


def test_the_data_set_of_our_dpo_configuration_is_looked_at(host: Host) -> None:
    host.with_bridge(yaml=GOOD_YAML)
    assert "ok       dataset-name" in host.bootstrap("--only", "dataset-name")
    for bad in (GOOD_YAML.replace("PreferenceDataset", ""), GOOD_YAML + "  validation: {dataset_name: HelpSteer3}\n"):
        host.say("dpo.yaml", bad)
        assert "does not name PreferenceDataset alone" in host.bootstrap("--only", "dataset-name", code=1)


def test_the_row_shape_of_our_training_file_is_looked_at(host: Host) -> None:
    host.with_bridge(row=GOOD_ROW)
    assert "ok       rank-shape" in host.bootstrap("--only", "rank-shape")
    host.say("row.jsonl", '{"prompt":"p","chosen":"a","rejected":"b"}\n')
    assert "lacks context, completions or rank" in host.bootstrap("--only", "rank-shape", code=1)
    assert not list((host.root / "tmp").iterdir())


def test_without_our_package_there_is_nothing_to_look_at(host: Host) -> None:
    assert "nothing  dataset-name: nvtrader-rl is not installed yet" in host.bootstrap("--only", "dataset-name")


# workers


def test_the_megatron_worker_needs_nvcc_and_says_so(gb10: Host) -> None:
    gb10.with_package()
    output = gb10.bootstrap("--only", "megatron", code=1, CUDA_HOME=str(gb10.root / "no cuda"))
    assert "error: no nvcc" in output and "CUDA toolkit" in output


def test_the_megatron_worker_is_built_by_nemo_rl_itself_with_our_interpreter(gb10: Host) -> None:
    gb10.with_package()
    gb10.put("nvcc")
    assert "ok       megatron" in gb10.bootstrap("--only", "megatron")
    worker = gb10.source / "venvs" / MEGATRON
    assert (worker / "UV_PYTHON").read_text() == str(gb10.conda_python)
    assert (worker / "TORCH_CUDA_ARCH_LIST").read_text() == "12.1"
    assert str(gb10.conda_python.parent) in (worker / "PATH").read_text().split(":")
    gb10.forget_calls()
    assert "ok       megatron" in gb10.bootstrap("--only", "megatron")
    assert not gb10.calls("python", "nemo_rl.utils.prefetch_venvs")


def test_a_megatron_build_that_failed_with_exit_code_0_is_noticed_and_done_again(gb10: Host) -> None:
    gb10.with_package()
    gb10.put("nvcc")
    gb10.say("no_megatron", "")
    assert "missing megatron.core, megatron.bridge" in gb10.bootstrap("--only", "megatron", code=1)
    (gb10.state / "no_megatron").unlink()
    gb10.bootstrap("--only", "megatron")


def test_without_a_gpu_the_architecture_to_compile_for_must_be_given(host: Host) -> None:
    host.with_package()
    host.put("nvcc")
    assert "TORCH_CUDA_ARCH_LIST=12.1" in host.bootstrap("--only", "megatron", code=1)
    host.bootstrap("--only", "megatron", TORCH_CUDA_ARCH_LIST="12.1")


def test_a_shared_worker_runs_the_drivers_own_interpreter_and_packages(gb10: Host) -> None:
    gb10.with_package()
    worker = gb10.environment_of(gb10.source / "venvs" / DTENSOR, "torch").parents[1]
    gb10.bootstrap("--only", "shared-worker")
    assert (worker / "bin/python").resolve() == gb10.conda_python.resolve()
    assert "ok       venvs: 1 good" in gb10.bootstrap("--only", "venvs")
    assert "ok       shared-worker" in gb10.bootstrap("--only", "shared-worker")


def test_verify_starts_the_dpo_script_and_shows_why_it_does_not(host: Host) -> None:
    host.with_package()
    assert "examples/run_dpo.py starts" in host.bootstrap("--only", "verify")
    (host.source / "examples/run_dpo.py").write_text("import megatron.core\n")
    assert "does not start: ModuleNotFoundError: No module named 'megatron'" in host.bootstrap(
        "--only", "verify", code=1
    )


def test_our_real_package_passes_both_looks(host: Host) -> None:
    bridge = host.repo / ".venv/bin/nvtrader-rl"
    bridge.parent.mkdir(parents=True)
    bridge.write_text(f'#!/usr/bin/env bash\nexec "{sys.executable}" -m nvtrader_rl_dagster.cli "$@"\n')
    bridge.chmod(0o755)
    output = host.bootstrap("--only", "dataset-name,rank-shape", PYTHONPATH=str(REPO))
    assert "ok       dataset-name" in output and "ok       rank-shape" in output
    assert not list((host.root / "tmp").iterdir()) and not list((host.root / "people").iterdir())
