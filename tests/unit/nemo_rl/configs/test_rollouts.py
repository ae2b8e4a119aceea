"""What GRPO and its variants, PPO and distillation have in common: steps, batches, validation, what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_cases import ROLLOUTS, VERSIONS, built, prompts, section_of

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.configs import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.known_keys import fits, known_keys

EVERY = tuple(itertools.product(ROLLOUTS, VERSIONS))


@pytest.mark.parametrize(("algo", "version"), EVERY)
@pytest.mark.parametrize("worker", ["dtensor", "dtensor_v2", "megatron"])
def test_every_key_is_one_that_nemo_rl_knows_and_of_its_kind(algo: str, version: str, worker: str) -> None:
    known = known_keys(algo, version)

    def wrong(section: dict[str, Any], above: str = "") -> list[str]:
        found = []
        for name, value in section.items():
            key = f"{above}{name}"
            kind = known.kind(key)
            if kind is None or not (isinstance(value, dict) or fits(value, kind)):
                found.append(f"{key}: {kind} for {value!r}")
            elif isinstance(value, dict) and kind != "open":
                found += wrong(value, f"{key}.")
        return found

    assert wrong(built(algo, version=version, worker=worker).config) == []


@pytest.mark.parametrize(("algo", "version"), EVERY)
def test_the_sections_are_those_of_the_release(algo: str, version: str) -> None:
    assert set(built(algo, version=version).config) == set(ALGOS[algo].release(version).sections)


@pytest.mark.parametrize(("algo", "version"), EVERY)
@pytest.mark.parametrize("worker", ["dtensor", "megatron"])
def test_no_worker_is_given_an_environment_which_would_land_in_checkpoints(
    algo: str, version: str, worker: str
) -> None:
    config = built(algo, version=version, worker=worker).config

    def workers(section: dict[str, Any]) -> list[dict[str, Any]]:
        inner = [value for value in section.values() if isinstance(value, dict)]
        return [d for d in inner if d.get("enabled") and "tensor_parallel_size" in "".join(d)] + [
            found for d in inner for found in workers(d)
        ]

    models = [name for name in ("policy", "teacher", "value") if name in config]
    found = [w for name in models for w in workers({name: config[name]}) if "env_vars" in w]
    assert [w["env_vars"] for w in found] == [None] * len(models)


@pytest.mark.parametrize(("algo", "version"), EVERY)
def test_a_gb10_shares_its_memory_between_generation_and_training(algo: str, version: str) -> None:
    config = built(algo, version=version).config
    generation = config["policy"]["generation"]
    assert generation["colocated"]["enabled"]
    assert 0.3 <= generation["vllm_cfg"]["gpu_memory_utilization"] <= 0.5
    assert generation["vllm_cfg"]["enforce_eager"]
    assert config["logger"]["monitor_gpus"] is False
    assert config["cluster"]["gpus_per_node"] == 1


@given(
    rows=st.integers(1, 200),
    prompts_per_step=st.integers(2, 40),
    generations=st.integers(2, 9),
    updates=st.integers(1, 8),
    gpus=st.sampled_from([1, 2, 4]),
    algo=st.sampled_from(ROLLOUTS),
    version=st.sampled_from(VERSIONS),
)
def test_a_step_is_shared_out_evenly_and_never_asks_for_more_prompts_than_there_are(
    rows: int, prompts_per_step: int, generations: int, updates: int, gpus: int, algo: str, version: str
) -> None:
    try:
        run = built(
            algo,
            version=version,
            gpus=gpus,
            data=prompts(rows),
            prompts_per_step=prompts_per_step,
            generations_per_prompt=generations,
            updates_per_step=updates,
        )
    except ValueError as error:
        assert str(error).startswith(("batch:", "no_rows:"))
        return
    own, policy = section_of(algo, run.config), run.config["policy"]
    samples = own["num_prompts_per_step"] * own["num_generations_per_prompt"]
    assert samples == policy["train_global_batch_size"] * updates
    assert policy["train_global_batch_size"] % (gpus * policy["train_micro_batch_size"]) == 0
    drawn = own["num_prompts_per_step"] * own.get("batch_multiplier", 1)
    assert 1 <= run.steps <= rows // drawn
    assert own["max_num_steps"] == run.steps


@pytest.mark.parametrize("algo", ROLLOUTS)
def test_fewer_prompts_than_a_step_shrink_it_and_say_so(algo: str) -> None:
    run = built(algo, data=prompts(6), prompts_per_step=16, updates_per_step=1)
    own = section_of(algo, run.config)
    assert own["num_prompts_per_step"] == (3 if algo == "dapo" else 6)
    assert run.steps == 1
    assert any("shrunk from 16" in note for note in run.notes)


@pytest.mark.parametrize("algo", ROLLOUTS)
def test_no_prompt_at_all_is_refused(algo: str) -> None:
    with pytest.raises(ValueError, match=r"^no_rows: /data/train\.jsonl holds 0"):
        built(algo, data=prompts(0))


@pytest.mark.parametrize("algo", ROLLOUTS)
def test_a_step_that_cannot_be_shared_out_is_refused_with_what_to_change(algo: str) -> None:
    with pytest.raises(ValueError, match=r"^batch: .*updates_per_step"):
        built(algo, data=prompts(4), generations_per_prompt=2, updates_per_step=5, gpus=2)


@pytest.mark.parametrize(("algo", "version"), EVERY)
def test_without_held_out_prompts_nothing_validates_and_no_metric_is_tracked(algo: str, version: str) -> None:
    run = built(algo, version=version, data=prompts(64, 0))
    own = section_of(algo, run.config)
    assert (own["val_period"], own["val_at_start"], own["val_at_end"]) == (0, False, False)
    assert run.config["data"]["validation"] is None
    assert run.config["checkpointing"]["metric_name"] is None
    assert any("no validation prompt" in note for note in run.notes)


@given(held_out=st.integers(1, 2000), asked=st.integers(1, 2000), algo=st.sampled_from(ROLLOUTS))
def test_validation_reads_almost_all_prompts_that_it_may_and_never_none(held_out: int, asked: int, algo: str) -> None:
    own = section_of(algo, built(algo, data=prompts(64, held_out), validation_prompts=asked).config)
    read = own["max_val_samples"] // own["val_batch_size"] * own["val_batch_size"]
    allowed = min(held_out, asked)
    assert 0.9 * allowed <= read <= allowed
    assert own["val_batch_size"] <= 256


@pytest.mark.parametrize("algo", ROLLOUTS)
def test_each_checkpoint_is_saved_where_its_metric_is_measured(algo: str) -> None:
    config = built(algo, data=prompts(500), save_period=10, validation_period=4).config
    assert section_of(algo, config)["val_period"] == 4
    assert config["checkpointing"]["save_period"] == 12
    assert config["checkpointing"]["metric_name"] == "val:accuracy"
    assert config["checkpointing"]["higher_is_better"] is True


@pytest.mark.parametrize("algo", ROLLOUTS)
def test_a_prompt_that_is_not_masked_has_room_for_its_answer(algo: str) -> None:
    config = built(algo, max_sequence_tokens=200, max_new_tokens=150).config
    longest = config["data"]["max_input_seq_length"] - 1
    assert longest + config["policy"]["generation"]["max_new_tokens"] == 200
    assert config["policy"]["generation"]["vllm_cfg"]["max_model_len"] == 200


def test_answers_that_leave_no_room_for_a_prompt_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^tokens: max_new_tokens 128"):
        built("grpo", max_sequence_tokens=128, max_new_tokens=128)


def test_an_override_of_an_option_plans_the_run_anew() -> None:
    run = built("grpo", overrides={"grpo.num_prompts_per_step": 4, "policy.generation.temperature": 0.7})
    assert run.config["policy"]["train_global_batch_size"] == 4 * 8
    assert run.steps == 16
    assert run.config["policy"]["generation"]["temperature"] == 0.7


@pytest.mark.parametrize(
    ("algo", "overrides", "said"),
    [
        ("grpo", {"policy.train_global_batch_size": 24, "policy.train_micro_batch_size": 1}, "must divide the 64"),
        ("grpo", {"grpo.batch_multiplier": 2}, "batch_multiplier must be 1"),
        ("grpo", {"grpo.async_grpo.enabled": True}, "async_grpo"),
        ("grpo", {"grpo.skip_reference_policy_logprobs_calculation": True}, "reference_policy_kl_penalty 0"),
        ("grpo", {"loss_fn.sequence_level_importance_ratios": True}, "token_level_loss"),
        ("grpo", {"policy.generation.backend": "sglang"}, "only vllm"),
        ("grpo", {"policy.generation.colocated.enabled": False}, "colocated"),
        ("grpo", {"policy.generation.vllm_cfg.async_engine": True}, "async_engine"),
        ("grpo", {"grpo.val_batch_size": 100}, "would read no batch"),
        ("grpo", {"data.use_multiple_dataloader": True}, "one training file"),
        ("ppo", {"grpo.adv_estimator.name": "grpo"}, "must be at least 2"),
        ("ppo", {"loss_fn.force_on_policy_ratio": True}, "updates_per_step to 1"),
        ("distillation", {"distillation.val_batch_size": 100}, "would read no batch"),
    ],
)
def test_overrides_that_nemo_rl_would_stop_at_are_refused(algo: str, overrides: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^structure: .*{said}"):
        built(algo, overrides=overrides)


@pytest.mark.parametrize("algo", ROLLOUTS)
def test_validating_without_prompts_by_an_override_is_refused(algo: str) -> None:
    name = "distillation" if algo == "distillation" else "grpo"
    with pytest.raises(ValueError, match=r"^structure: .*without validation prompts"):
        built(algo, data=prompts(64, 0), overrides={f"{name}.val_at_end": True})


@pytest.mark.parametrize("algo", ["grpo", "dapo", "gdpo"])
@pytest.mark.parametrize("version", VERSIONS)
def test_lora_is_an_adapter_on_the_second_dtensor_worker(algo: str, version: str) -> None:
    config = built(algo, version=version, worker="dtensor_v2", lora_rank=16).config
    assert config["policy"]["dtensor_cfg"]["lora_cfg"]["dim"] == 16
    with pytest.raises(ValueError, match="dtensor_v2"):
        built(algo, version=version, lora_rank=16)


def test_lora_is_refused_where_no_reference_shows_it() -> None:
    for algo, version in (("ppo", "0.7.0"), ("distillation", "0.6.0"), ("distillation", "0.7.0")):
        with pytest.raises(ValueError, match=r"^lora: "):
            built(algo, version=version, worker="dtensor_v2", lora_rank=16)


def _same(one: BuiltConfig, other: BuiltConfig) -> bool:
    return one.config == other.config and one.notes == other.notes


@pytest.mark.parametrize("algo", ROLLOUTS)
def test_the_same_options_give_the_same_configuration(algo: str) -> None:
    assert _same(built(algo), built(algo))
    assert built(algo).config_hash != built(algo, temperature=0.9).config_hash
