"""Checkpoint folder, model folder, memory, disk and tree: what is really there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from looking import (
    EMBEDDED,
    byte_tokenizer,
    case_of,
    changed,
    codes,
    complete,
    look,
    make_model,
    make_tree,
    nemo_rl,
    save_checkpoint,
    write_weights,
)

from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.model_files import Shape, count_parameters, missing_weights
from nvtrader_rl_dagster.nemo_rl.preflight import capacity
from nvtrader_rl_dagster.nemo_rl.preflight.capacity import Device
from nvtrader_rl_dagster.nemo_rl.preflight.case import Start
from nvtrader_rl_dagster.nemo_rl.preflight.check import preflight
from nvtrader_rl_dagster.nemo_rl.preflight.report import Level
from nvtrader_rl_dagster.nemo_rl.preflight.sizes import activation_bytes, checkpoint_bytes, state_bytes


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return changed(complete(tmp_path_factory.mktemp("dpo"), "dpo"), {"dpo.max_num_epochs": 5, "dpo.max_num_steps": 5})


def in_folder(config: dict[str, Any], folder: Path, **changes: Any) -> dict[str, Any]:
    return changed(config, {"checkpointing.checkpoint_dir": str(folder), **changes})


@pytest.mark.parametrize(
    ("start", "same", "other", "empty"),
    [
        (Start.AUTO, [], ["checkpoint_mismatch"], []),
        (Start.NEW, ["checkpoint_folder_used"], ["checkpoint_folder_used"], []),
        (Start.RESUME, [], ["checkpoint_mismatch"], ["no_checkpoint"]),
        (Start.FORK, [], [], ["no_checkpoint"]),
    ],
)
def test_checkpoints_in_the_folder_are_gone_on_from_only_when_that_is_meant(
    config: dict[str, Any], tmp_path: Path, start: Start, same: list[str], other: list[str], empty: list[str]
) -> None:
    """Case O40."""
    run = in_folder(config, tmp_path / "ckpt")
    assert codes(look("dpo", run, EMBEDDED, start)) == empty
    save_checkpoint(tmp_path / "ckpt", 1, run, epoch=0, step=0)
    assert codes(look("dpo", run, EMBEDDED, start)) == same
    another = changed(run, {"policy.model_name": str(make_model(tmp_path / "another"))})
    report = look("dpo", another, EMBEDDED, start)
    assert codes(report) == other
    assert ("fork" in codes(report, Level.WARN)) is (start is Start.FORK)
    if other:
        assert report.refusals[0].remedy


def test_a_cut_off_save_is_no_checkpoint(config: dict[str, Any], tmp_path: Path) -> None:
    run = in_folder(config, tmp_path / "ckpt")
    save_checkpoint(tmp_path / "ckpt", 1, run)
    (tmp_path / "ckpt" / "step_1").rename(tmp_path / "ckpt" / "tmp_step_1")
    assert codes(look("dpo", run, EMBEDDED, Start.NEW)) == []


def test_an_incomplete_model_folder_is_refused_with_what_is_missing(config: dict[str, Any], tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")

    def said() -> str:
        report = look("dpo", changed(config, {"policy.model_name": str(model)}), EMBEDDED)
        return " ".join(f"{finding.code}: {finding.message}" for finding in report.refusals)

    assert said() == ""
    write_weights(model / "model.safetensors", 1000, cut=1)
    assert "model_incomplete" in said() and "model.safetensors is cut off" in said()
    (model / "model.safetensors").write_bytes(b"x")
    assert "cut off" in said()
    (model / "model.safetensors").unlink()
    assert "there is no weight file" in said()
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}')
    write_weights(model / "a.safetensors", 10)
    assert "1 of 2 weight files are missing, for example b.safetensors" in said()
    write_weights(model / "b.safetensors", 10)
    assert said() == ""
    (model / "config.json").unlink()
    assert "no readable config.json" in said()


def test_a_tokenizer_without_files_or_template_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    run = changed(config, {"policy.tokenizer": {"name": str(folder)}})
    assert codes(look("dpo", run, EMBEDDED)) == ["tokenizer_missing"]
    byte_tokenizer(folder)
    assert codes(look("dpo", run, EMBEDDED)) == []
    (folder / "tokenizer_config.json").write_text("{}")
    assert codes(look("dpo", run, EMBEDDED)) == ["no_chat_template"]
    assert codes(look("dpo", changed(run, {"policy.tokenizer.chat_template": None}), EMBEDDED)) == []
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert codes(look("dpo", run, EMBEDDED)) == []


def test_a_hub_model_is_looked_for_in_the_cache(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = nemo_rl(make_tree(tmp_path / "tree"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    run = changed(config, {"policy.model_name": "meta-llama/L", "policy.tokenizer": {"name": "meta-llama/L"}})
    assert codes(look("dpo", run, tree)) == ["hub_offline"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert codes(look("dpo", run, tree)) == ["gated_model"]
    monkeypatch.setenv("HF_TOKEN", "x")
    with_token = Trainer("nemo_rl", "", sys.executable, tree.source, passed=("HF_TOKEN",))
    report = look("dpo", run, with_token)
    assert codes(report) == [] and "hub_download" in codes(report, Level.WARN)
    make_model(tmp_path / "hf/hub/models--meta-llama--L/snapshots/abc")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    report = look("dpo", run, tree)
    assert codes(report) == [] and report.memory is not None


def test_parameters_are_counted_from_headers(tmp_path: Path) -> None:
    assert count_parameters(str(make_model(tmp_path / "model", 12345))) == 12345
    assert count_parameters("builtin:tiny") == 2_016_960 and count_parameters(str(tmp_path / "none")) is None
    assert missing_weights(tmp_path / "model") == ""


def test_states_and_activations_follow_their_formulas() -> None:
    assert sum(state_bytes(1000, reference=True).values()) == 20_000
    assert sum(state_bytes(1000, reference=False).values()) == 16_000
    assert state_bytes(1000, reference=False, frozen=True) == {"weights": 4000}
    assert sum(state_bytes(1000, reference=False, megatron=True).values()) == 18_000
    assert state_bytes(1000, reference=False, lora=True)["optimizer"] == 240
    shape = Shape(layers=2, hidden=64, vocabulary=512)
    half = activation_bytes(shape, 4, 128, half=True, checkpointing=False)
    assert half == 34 * 2 * 4 * 128 * 64 + 12 * 4 * 128 * 512
    assert activation_bytes(shape, 4, 128, half=False, checkpointing=False) - half == 34 * 2 * 4 * 128 * 64
    assert checkpoint_bytes(1000, optimizer=True, consolidated=True) == 16_000
    assert checkpoint_bytes(1000, optimizer=False, consolidated=False) == 4_000


def test_memory_is_refused_only_when_the_states_are_more_than_there_is(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "large", 1_000_000_000)
    run = changed(config, {"policy.model_name": str(model), "checkpointing.enabled": False})
    for total, available, level in (
        (19e9, 19e9, Level.REFUSE),
        (21e9, 19e9, Level.WARN),
        (21e9, 21e9, Level.OK),
    ):
        there = Device("memory", int(total), int(available), True, False)
        monkeypatch.setattr(capacity, "device", lambda case, there=there: there)
        report = look("dpo", run, EMBEDDED)
        (finding,) = (finding for finding in report.findings if finding.code == "memory")
        assert finding.level is level and "reference 4.0 GB" in finding.message
        assert report.memory is not None and 20e9 < report.memory.need < 20.5e9


def test_a_gpu_of_its_own_holds_no_reference_and_shares_the_states(config: dict[str, Any], tmp_path: Path) -> None:
    case = case_of("dpo", changed(config, {"cluster.gpus_per_node": 2}), make_tree(tmp_path / "tree"))
    own = capacity.predict_memory(case, Device("GPU memory", 10**9, 10**9, False, False))
    assert own is not None and "reference" not in own.parts and own.parts["weights"] == 4 * 1000 // 2
    offloaded = case_of("dpo", changed(config, {"policy.dtensor_cfg.cpu_offload": True}), tmp_path / "tree")
    own = capacity.predict_memory(offloaded, Device("GPU memory", 10**9, 10**9, False, False))
    assert own is not None and list(own.parts) == ["activations"]


def test_rollouts_count_the_share_of_generation_or_the_activations(tmp_path: Path) -> None:
    run = complete(tmp_path / "run", "grpo")
    run["policy"]["generation"]["vllm_cfg"]["gpu_memory_utilization"] = 0.7
    case = case_of("grpo", run, make_tree(tmp_path / "tree"))
    gb10 = Device("unified memory (GB10)", 120 * 10**9, 100 * 10**9, True, True)
    prediction = capacity.predict_memory(case, gb10)
    assert prediction is not None and prediction.parts["generation"] == 84 * 10**9
    found = {finding.code: finding.level for finding in capacity.check_memory(case, gb10, prediction)}
    assert found == {"memory": Level.OK, "weight_refit": Level.OK, "generation_memory": Level.WARN}


def test_a_teacher_takes_memory_for_its_weights_only(tmp_path: Path) -> None:
    teacher = make_model(tmp_path / "teacher", 5000)
    run = complete(tmp_path / "run", "distillation", teacher_model=str(teacher))
    case = case_of("distillation", run, make_tree(tmp_path / "tree"))
    prediction = capacity.predict_memory(case, Device("memory", 10**9, 10**9, True, False))
    assert prediction is not None and prediction.parts["teacher"] == 4 * 5000


def test_disk_is_predicted_from_checkpoints_and_refused_when_not_one_fits(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "model", 1_000_000_000)
    run = in_folder(
        config,
        tmp_path / "ckpt",
        **{"policy.model_name": str(model), "checkpointing.save_period": 1, "checkpointing.keep_top_k": 1},
        **{"checkpointing.save_optimizer": True},
    )
    free = shutil.disk_usage(tmp_path)
    for there, level in ((15e9, Level.REFUSE), (47e9, Level.WARN), (49e9, Level.OK)):
        usage = type(free)(free.total, free.used, int(there))
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        report = look("dpo", run, EMBEDDED)
        assert report.disk is not None and report.disk.parts["one checkpoint"] == 16 * 10**9
        assert report.disk.parts["2 more checkpoints"] == 32 * 10**9
        assert [f.level for f in report.findings if f.code == "disk"] == [level]


def test_a_tree_without_the_script_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "examples" / "run_dpo.py").unlink()
    assert codes(look("dpo", config, nemo_rl(tree))) == ["script_missing"]


def test_a_release_that_is_not_supported_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "nemo_rl" / "package_info.py").write_text("MAJOR = 0\nMINOR = 5\nPATCH = 1\n")
    report = look("dpo", config, nemo_rl(tree))
    assert codes(report) == ["version"] and "says NeMo-RL 0.5.1" in report.refusals[0].message


def make_checkout(folder: Path, packages: Path, *names: str) -> Trainer:
    """A tree with NeMo-RL's package folder, and an interpreter that can import the named packages."""
    tree = make_tree(folder)
    (tree / "nemo_rl" / "algorithms").mkdir()
    (tree / "nemo_rl" / "__init__.py").touch()
    for name in names:
        package = packages.joinpath(*name.split("."))
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        if package.parent != packages:
            (package.parent / "__init__.py").touch()
    return nemo_rl(tree)


def test_packages_that_cannot_be_imported_are_named(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    monkeypatch.setenv("NVTRADER_NEMORL_PYTHONPATH", str(packages))
    trainer = make_checkout(tmp_path / "tree", packages, "ray_of_somebody")
    report = look("dpo", config, trainer)
    (finding,) = report.refusals
    assert finding.code == "packages_missing" and "cannot import ray, hydra, nemo_rl" in finding.message


def test_empty_submodules_are_refused_where_the_script_imports_from_them(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    monkeypatch.setenv("NVTRADER_NEMORL_PYTHONPATH", str(packages))
    trainer = make_checkout(tmp_path / "tree", packages, "ray", "hydra", "nemo_rl")
    tree = trainer.source
    assert tree is not None
    (tree / ".gitmodules").write_text('[submodule "m"]\n\tpath = 3rdparty/Megatron-LM\n\turl = x\n')
    (tree / "3rdparty" / "Megatron-LM").mkdir(parents=True)
    report = look("dpo", config, trainer)
    assert codes(report) == ["submodules_missing"] and "submodule update" in report.refusals[0].remedy
    package = packages / "megatron" / "core"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    assert codes(look("dpo", config, trainer)) == []
    shutil.rmtree(package.parent)
    (tree / "3rdparty" / "Megatron-LM" / "setup.py").touch()
    assert codes(look("dpo", config, trainer)) == []
    assert "python_version" in codes(look("dpo", config, trainer), Level.WARN) or sys.version_info >= (3, 13)


def test_an_interpreter_that_does_not_answer_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    trainer = make_checkout(tmp_path / "tree", tmp_path / "packages")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no module named site >&2\nexit 3\n")
    broken.chmod(0o755)
    report = preflight("dpo", config, Trainer("nemo_rl", "", str(broken), trainer.source))
    assert codes(report) == ["interpreter"] and "no module named site" in report.refusals[0].message
