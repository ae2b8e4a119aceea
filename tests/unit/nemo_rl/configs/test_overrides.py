"""Free overrides: what is taken, what is refused, and how it is said."""

from __future__ import annotations

from typing import Any

import pytest
from supervised_cases import VERSIONS, built

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.configs.known_keys import known_keys


def dpo(overrides: dict[str, Any], **options: Any) -> Any:
    return built("dpo", overrides=overrides, **options)


def test_a_known_key_is_set_and_noted() -> None:
    run = dpo({"policy.max_grad_norm": 0.5, "policy.optimizer.kwargs.eps": 1e-6})
    assert run.config["policy"]["max_grad_norm"] == 0.5
    assert run.config["policy"]["optimizer"]["kwargs"]["eps"] == 1e-6
    assert run.config["policy"]["optimizer"]["kwargs"]["lr"] == 5e-6
    assert sum("by an override" in note for note in run.notes) == 2


def test_nested_mappings_say_the_same_as_dotted_keys() -> None:
    nested = dpo({"policy": {"optimizer": {"kwargs": {"eps": 1e-6}}, "max_grad_norm": 0.5}})
    assert nested == dpo({"policy.optimizer.kwargs.eps": 1e-6, "policy.max_grad_norm": 0.5})


def test_a_key_of_an_option_sets_the_option_with_all_that_follows() -> None:
    for key, value, option in (
        ("dpo.max_num_steps", 2, "max_steps"),
        ("policy.train_global_batch_size", 8, "batch_pairs"),
        ("dpo.reference_policy_kl_penalty", 0.3, "beta"),
        ("policy.model_name", "other", "base_model"),
        ("checkpointing.save_period", 7, "save_period"),
    ):
        assert dpo({key: value}) == built("dpo", **{option: value})


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("dpo.seeed", "dpo.seed"),
        ("policy.max_grad_nrm", "policy.max_grad_norm"),
        ("dpo.beta", "dpo.reference_policy_kl_penalty"),
        ("policy.optimizer.lr", "policy.optimizer.kwargs.lr"),
        ("grpo.seed", "dpo.seed"),
        ("max_grad_norm", "policy.max_grad_norm"),
        ("cluster.gpus", "cluster.gpus_per_node"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"no key {key} for dpo; the nearest is {nearest}$"):
        dpo({key: 1})


def test_a_key_of_another_release_is_unknown() -> None:
    key = {"sft.only_unmask_final": True}
    assert built("sft", version="0.7.0", overrides=key).config["sft"]["only_unmask_final"] is True
    with pytest.raises(ValueError, match=r"NeMo-RL 0\.6\.0 has no key sft\.only_unmask_final"):
        built("sft", version="0.6.0", overrides=key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("checkpointing.checkpoint_dir", "/elsewhere"),
        ("logger.log_dir", "/elsewhere"),
        ("policy.dtensor_cfg.env_vars", {"A": "b"}),
        ("policy.dtensor_cfg.env_vars", {}),
        ("policy.megatron_cfg.env_vars.A", "b"),
        ("data.train.data_path", "other.jsonl"),
        ("data.train", {"data_path": "other.jsonl"}),
        ("policy.megatron_cfg.enabled", True),
        ("policy.dtensor_cfg._v2", True),
    ],
)
def test_what_the_run_or_an_option_decides_is_refused_with_the_reason(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"override: {key}.* cannot be set: [a-z]"):
        dpo({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("policy.max_grad_norm", "much"),
        ("policy.max_grad_norm", True),
        ("dpo.val_at_end", 1),
        ("dpo.val_micro_batch_size", 1.5),
        ("policy.precision", None),
        ("policy.optimizer", 3),
        ("data.train", []),
        ("data.validation", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"override: {key} takes "):
        dpo({key: value})


def test_a_section_is_not_emptied() -> None:
    with pytest.raises(ValueError, match=r"policy\.dtensor_cfg is a section; name a key below it"):
        dpo({"policy.dtensor_cfg": {}})
    assert dpo({"policy.hf_config_overrides": {}}).config["policy"]["hf_config_overrides"] == {}


def test_a_value_that_an_option_refuses_is_refused_by_the_name_of_the_key() -> None:
    with pytest.raises(ValueError, match=r"override: dpo\.max_num_steps: .*greater than or equal to 1"):
        dpo({"dpo.max_num_steps": 0})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"policy.sequence_packing.enabled": True}, "sequence_packing.enabled must be false"),
        ({"policy.dynamic_batching.enabled": True}, "dynamic_batching.enabled must be false"),
        ({"checkpointing.model_save_format": "safetensors"}, "model_save_format must be null"),
        ({"policy.scheduler": None}, "scheduler cannot be null"),
        ({"policy.optimizer": None}, "optimizer cannot be null"),
        ({"cluster.gpus_per_node": 3}, "multiple of 3 data-parallel"),
        ({"policy.dtensor_cfg.context_parallel_size": 2}, "cannot hold copies"),
        ({"checkpointing.metric_name": "validation-default_loss"}, "must start with val: or train:"),
        ({"checkpointing.metric_name": "val:loss"}, "it measures val:validation-default_loss"),
        ({"checkpointing.metric_name": "val:validation-default_accuracy"}, "higher_is_better must be true"),
    ],
)
def test_a_rule_that_no_type_expresses_is_kept(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dpo(overrides)


@pytest.mark.parametrize(
    ("key", "section"),
    [
        ("policy.megatron_cfg.apply_rope_fusion", "policy.megatron_cfg"),
        ("policy.dynamic_batching.sequence_length_round", "policy.dynamic_batching"),
    ],
)
def test_a_key_of_what_is_switched_off_is_refused(key: str, section: str) -> None:
    value = 8 if key.endswith("round") else True
    with pytest.raises(ValueError, match=f"{key} has no effect: {section}.enabled is false"):
        dpo({key: value})


def test_a_switch_and_what_it_switches_on_can_be_set_together() -> None:
    both = {"policy.dynamic_batching.enabled": True, "policy.dynamic_batching.sequence_length_round": 8}
    config = built("sft", overrides=both).config
    assert config["policy"]["dynamic_batching"] == {
        "enabled": True,
        "sequence_length_round": 8,
        "train_mb_tokens": config["policy"]["max_total_sequence_length"],
    }


def test_another_metric_can_rank_the_checkpoints() -> None:
    chosen = {"checkpointing.metric_name": "val:validation-default_accuracy", "checkpointing.higher_is_better": True}
    assert dpo(chosen).config["checkpointing"]["metric_name"] == "val:validation-default_accuracy"
    with pytest.raises(ValueError, match="needs a validation set"):
        dpo(chosen, held_out=0)


def test_many_tensor_parallel_devices_need_equal_micro_batches() -> None:
    four = {"tensor_parallel": 4, "gpus": 4}
    assert dpo({"policy.logprob_batch_size": 1}, **four).steps
    with pytest.raises(ValueError, match="logprob_batch_size must equal"):
        dpo({"policy.logprob_batch_size": 2}, **four)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("algo", ALGOS)
def test_the_known_keys_of_every_algorithm_are_packaged(algo: str, version: str) -> None:
    kinds = known_keys(algo, version).kinds
    release = ALGOS[algo].release(version)
    assert set(release.sections) == {key for key in kinds if "." not in key}
    assert any(key.startswith(f"{release.section}.") for key in kinds)
    assert ("policy.generation.top_p" in kinds) == ("loss_fn" in release.sections)
