"""The YAML: inheritance, overrides, resolvers, and errors that name the dotted key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_helpers import CONFIG, merged

from nvtrader_rl_dagster.local_trainer.compute import onednn_is_exact, set_up_compute
from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section, load_config
from nvtrader_rl_dagster.local_trainer.dpo_settings import DpoSettings
from nvtrader_rl_dagster.local_trainer.optim import build_optimizer, build_scheduler


def test_defaults_merge_depth_first_and_an_override_section_replaces(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "root.yaml").write_text("policy: {a: 1, b: [1, 2]}\ndata: {x: 1, y: 2}\nenv: {k: v}\n")
    (tmp_path / "base" / "mid.yaml").write_text("defaults: root.yaml\npolicy: {a: 2}\n")
    (tmp_path / "run.yaml").write_text(
        "defaults: [base/mid.yaml]\npolicy: {b: [3]}\ndata: {_override_: true, z: 3}\nenv: null\n"
    )
    assert load_config(tmp_path / "run.yaml") == {"policy": {"a": 2, "b": [3]}, "data": {"z": 3}, "env": None}


def test_a_loop_of_defaults_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("defaults: b.yaml\n")
    (tmp_path / "b.yaml").write_text("defaults: a.yaml\n")
    with pytest.raises(ConfigError, match="loop"):
        load_config(tmp_path / "a.yaml")


def test_interpolations_and_the_three_resolvers(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "n: 6\nm: ${n}\np: ${mul:${n}, 2}\nq: ${div:${n}, 4}\nr: ${max:${n}, 9}\nlr: 5e-6\n"
    )
    assert load_config(tmp_path / "a.yaml") == {"n": 6, "m": 6, "p": 12, "q": 1.5, "r": 9, "lr": 5e-6}


def test_overrides_follow_hydras_basic_grammar(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: {b: 1, c: null, d: x}\n")
    assert load_config(path, ["a.b=2.5", "a.c=[1, 2]", "+a.e=true", "++a.f=null", "~a.d"]) == {
        "a": {"b": 2.5, "c": [1, 2], "e": True, "f": None}
    }


@pytest.mark.parametrize("override", ["a.z=1", "+a.b=1", "+a.c=1", "~a.z", "a.b", "--a.b=1", "=1"])
def test_a_wrong_override_is_an_error_that_quotes_it(tmp_path: Path, override: str) -> None:
    (tmp_path / "a.yaml").write_text("a: {b: 1, c: null}\n")
    with pytest.raises(ConfigError, match="override"):
        load_config(tmp_path / "a.yaml", [override])


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [1")
    with pytest.raises(ConfigError, match=r"a\.yaml: not readable"):
        load_config(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match=r"b\.yaml: no such file"):
        load_config(tmp_path / "b.yaml")


def leaves(values: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in values.items():
        found += leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]
    return found


NOT_READ = {
    "dpo.val_micro_batch_size",
    "policy.train_micro_batch_size",
    "data.num_workers",
    "policy.scheduler",
}
READ_LATER = (
    "data.train.",
    "data.validation.",
    "policy.optimizer.",
    "policy.tokenizer.",
    "policy.local_trainer.",
)


@pytest.mark.parametrize(
    "dotted",
    [
        key
        for key in leaves({name: CONFIG[name] for name in ("dpo", "policy", "data", "checkpointing")})
        if key not in NOT_READ and not key.startswith(READ_LATER)
    ],
)
def test_every_key_that_is_read_is_named_when_it_is_missing_or_wrong(dotted: str) -> None:
    config = merged(CONFIG, {})
    *parents, leaf = dotted.split(".")
    section = config
    for key in parents:
        section = section[key]
    del section[leaf]
    with pytest.raises(ConfigError, match=rf"'{dotted}' is missing"):
        DpoSettings.from_config(config)
    section[leaf] = ["wrong"]
    with pytest.raises(ConfigError, match=rf"'{dotted}'"):
        DpoSettings.from_config(config)


@pytest.mark.parametrize("key", ["dynamic_batching", "sequence_packing", "megatron_cfg"])
def test_a_switch_that_would_change_the_training_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"policy\.{key}\.enabled"):
        DpoSettings.from_config(merged(CONFIG, {f"policy.{key}": {"enabled": True}}))


def test_a_reduced_precision_is_said_to_be_computed_in_float32(capsys: pytest.CaptureFixture[str]) -> None:
    DpoSettings.from_config(merged(CONFIG, {"policy.precision": "bfloat16"}))
    assert "bfloat16: the embedded trainer computes in float32" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"policy\.precision"):
        DpoSettings.from_config(merged(CONFIG, {"policy.precision": "int4"}))


def learning_rates(policy: dict[str, Any], steps: int) -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(1))
    section = Section(policy, "policy")
    optimizer = build_optimizer([weight], section)
    scheduler = build_scheduler(optimizer, section)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        weight.grad = torch.zeros(1)
        optimizer.step()
        scheduler.step()
    return rates


def test_the_schedule_list_warms_up_to_its_milestone_and_none_is_constant() -> None:
    assert learning_rates(CONFIG["policy"], 6) == pytest.approx([1e-4, 2.5e-4 + 0.75e-4, 5.5e-4, 7.75e-4, 1e-3, 1e-3])
    assert learning_rates(merged(CONFIG, {"policy.scheduler": None})["policy"], 3) == [1e-3] * 3


@pytest.mark.parametrize("asked", [{}, {"foreach": False, "fused": False}])
def test_what_dtensor_parameters_need_does_not_slow_this_trainer_down(asked: dict[str, bool]) -> None:
    policy = merged(CONFIG, {"policy.optimizer.kwargs": {"lr": 1e-3, **asked}})["policy"]
    optimizer = build_optimizer([torch.nn.Parameter(torch.zeros(1))], Section(policy, "policy"))
    assert optimizer.defaults["fused"] is True


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"policy.optimizer.name": "os.system"}, r"policy\.optimizer\.name"),
        ({"policy.optimizer.name": "torch.optim.Nothing"}, r"policy\.optimizer\.name"),
        ({"policy.optimizer.kwargs": {"speed": 1}}, r"policy\.optimizer\.kwargs"),
        (
            {"policy.scheduler": [{"name": "torch.optim.lr_scheduler.ConstantLR", "kwargs": {}}]},
            r"policy\.scheduler",
        ),
        ({"policy.scheduler": "cosine"}, r"policy\.scheduler"),
    ],
)
def test_an_unknown_optimizer_or_schedule_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        learning_rates(merged(CONFIG, change)["policy"], 1)


def test_onednn_is_used_only_where_float32_stays_float32() -> None:
    assert onednn_is_exact(frozenset({"avx2", "avx512f", "avx512_bf16"}))
    assert not onednn_is_exact(frozenset({"avx512f", "amx_tile", "amx_bf16"}))
    assert not onednn_is_exact(frozenset({"avx2"}))
    assert not onednn_is_exact(frozenset())


def test_numbers_too_small_for_float32_are_flushed_because_they_are_slow() -> None:
    compute = set_up_compute(Section({"threads": 1, "matmul": "highest", "pack_tokens": 99}, "policy.local_trainer"))
    assert compute.describe() == "1 threads, float32, matmul highest, up to 99 tokens a row"
    assert float(torch.tensor([1e-30]) * torch.tensor([1e-10])) == 0.0


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"pack_tokens": 0}, {"matmul": "fast"}])
def test_a_wrong_local_trainer_setting_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"policy\.local_trainer"):
        set_up_compute(Section(wrong, "policy.local_trainer"))
