"""SFT, DPO and reward models: what their YAML says about data, steps, validation and the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from supervised_cases import SUPERVISED, VERSIONS, batch_option, built, rows

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, Target
from nvtrader_rl_dagster.nemo_rl.configs.known_keys import fits, known_keys
from nvtrader_rl_dagster.nemo_rl.configs.overrides import flat

ALL = [(algo, version) for algo in SUPERVISED for version in VERSIONS]
WORKERS: list[dict[str, Any]] = [
    {},
    {"worker": "dtensor_v2"},
    {"worker": "dtensor_v2", "lora_rank": 8},
    {"worker": "megatron", "lora_rank": 8},
]


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


@pytest.mark.parametrize(("algo", "version"), ALL)
@pytest.mark.parametrize("worker", WORKERS)
def test_every_key_is_one_of_the_release_and_of_its_type(algo: str, version: str, worker: dict[str, Any]) -> None:
    if algo == "rm":
        worker = {name: value for name, value in worker.items() if value != "megatron" and name != "lora_rank"}
    known = known_keys(algo, version)
    for key, value in flat(built(algo, version=version, **worker).config).items():
        kind = known.kind(key)
        assert kind is not None, key
        assert fits(value, kind) or key.endswith("env_vars"), (key, value, kind)


@pytest.mark.parametrize(("algo", "version"), ALL)
def test_it_stands_alone_and_survives_yaml(algo: str, version: str) -> None:
    config = built(algo, version=version).config
    assert set(config) == set(ALGOS[algo].release(version).sections)
    text = yaml.safe_dump(config, sort_keys=False)
    assert yaml.safe_load(text) == config
    assert "${" not in text and "&id" not in text
    assert not [value for value in leaves(config) if not isinstance(value, str | int | float | bool | None)]


@pytest.mark.parametrize(("algo", "version"), ALL)
def test_nothing_leaves_the_machine_and_no_secret_reaches_a_checkpoint(algo: str, version: str) -> None:
    config = built(algo, version=version).config
    for name in ("wandb", "mlflow", "swanlab", "tensorboard"):
        assert config["logger"][f"{name}_enabled"] is False
    assert config["logger"]["monitor_gpus"] is False
    assert config["policy"]["dtensor_cfg"]["env_vars"] is None
    if algo != "rm":
        assert built(algo, worker="megatron").config["policy"]["megatron_cfg"]["env_vars"] is None


@pytest.mark.parametrize("algo", SUPERVISED)
def test_it_trains_and_validates_on_the_files_of_the_run(algo: str) -> None:
    data = built(algo).config["data"]
    assert data["train"]["data_path"] == "/data/train.jsonl"
    assert data["validation"]["data_path"] == "/data/validation.jsonl"
    assert {data[block]["dataset_name"] for block in ("train", "validation")} == {
        "openai_format" if algo == "sft" else "PreferenceDataset"
    }


@pytest.mark.parametrize("algo", SUPERVISED)
def test_the_model_is_the_tokenizer_too_and_brings_its_own_chat_template(algo: str) -> None:
    policy = built(algo, base_model="house/model").config["policy"]
    assert policy["model_name"] == policy["tokenizer"]["name"] == "house/model"
    assert "chat_template" not in policy["tokenizer"]
    assert built(algo, chat_template="t.jinja").config["policy"]["tokenizer"]["chat_template"] == "t.jinja"


@pytest.mark.parametrize("algo", SUPERVISED)
def test_fewer_rows_than_a_batch_shrink_it_and_say_so(algo: str) -> None:
    run = built(algo, train=5, **{batch_option(algo): 32})
    assert run.config["policy"]["train_global_batch_size"] == 5
    assert run.steps == run.config[algo]["max_num_steps"] == 1
    assert any("shrunk from 32 to 5" in note for note in run.notes)


@pytest.mark.parametrize("algo", SUPERVISED)
def test_without_a_row_it_is_refused(algo: str) -> None:
    with pytest.raises(ValueError, match=r"no_rows: .*train\.jsonl"):
        built(algo, train=0)


@pytest.mark.parametrize("algo", SUPERVISED)
def test_rows_that_fill_no_batch_are_counted(algo: str) -> None:
    run = built(algo, train=10, epochs=3, **{batch_option(algo): 4})
    assert run.steps == 6
    assert any(note.startswith("2 of 10 ") for note in run.notes)
    assert built(algo, train=10, epochs=3, max_steps=5, **{batch_option(algo): 4}).steps == 5


@pytest.mark.parametrize("algo", SUPERVISED)
@pytest.mark.parametrize("options", [{"epochs": 0}, {"max_steps": 0}])
def test_a_training_of_nothing_is_no_training(algo: str, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        built(algo, **options)


@pytest.mark.parametrize("algo", SUPERVISED)
@pytest.mark.parametrize(("save", "validate", "saved", "validated"), [(50, 0, 50, 50), (50, 20, 60, 20), (7, 7, 7, 7)])
def test_each_checkpoint_has_the_metric_that_ranks_it(
    algo: str, save: int, validate: int, saved: int, validated: int
) -> None:
    run = built(algo, train=1000, save_period=save, validation_period=validate, **{batch_option(algo): 1})
    own, checkpointing = run.config[algo], run.config["checkpointing"]
    assert (checkpointing["save_period"], own["val_period"]) == (saved, validated)
    assert own["val_at_end"] and own["val_at_start"]
    assert checkpointing["metric_name"] == ALGOS[algo].tracked
    assert checkpointing["higher_is_better"] is False
    assert any("multiple of the validation period" in note for note in run.notes) == (saved != save)


@pytest.mark.parametrize("algo", SUPERVISED)
def test_without_held_out_rows_nothing_is_validated_or_ranked(algo: str) -> None:
    run = built(algo, held_out=0)
    own = run.config[algo]
    assert run.config["data"]["validation"] is None and run.config["checkpointing"]["metric_name"] is None
    assert (own["val_period"], own["val_at_start"], own["val_at_end"]) == (0, False, False)
    assert any("no validation" in note for note in run.notes)


@pytest.mark.parametrize(
    ("asked", "held_out", "batch", "batches"), [(128, 16, 16, 1), (128, 200, 32, 4), (128, 70, 32, 3), (5, 200, 5, 1)]
)
def test_a_validation_reads_as_many_rows_as_asked(asked: int, held_out: int, batch: int, batches: int) -> None:
    dpo = built("dpo", held_out=held_out, validation_pairs=asked).config["dpo"]
    assert (dpo["val_global_batch_size"], dpo["val_batches"]) == (batch, batches)


@pytest.mark.parametrize("algo", SUPERVISED)
def test_several_devices_share_whole_batches(algo: str) -> None:
    run = built(algo, train=64, held_out=3, gpus=4, tensor_parallel=2, micro_batch=4, **{batch_option(algo): 9})
    policy, own = run.config["policy"], run.config[algo]
    assert (policy["train_global_batch_size"], policy["train_micro_batch_size"]) == (8, 4)
    assert own["val_global_batch_size"] % 2 == 0
    assert run.config["cluster"]["gpus_per_node"] == 4
    with pytest.raises(ValueError, match="gpus: 3 GPUs"):
        built(algo, gpus=3, tensor_parallel=2)
    with pytest.raises(ValueError, match=r"no_rows: .*1 .* for 2 data-parallel"):
        built(algo, train=1, gpus=2)


@pytest.mark.parametrize(("algo", "version"), ALL)
def test_the_first_worker_saves_its_own_format_and_the_second_a_hugging_face_folder(algo: str, version: str) -> None:
    first, second = built(algo, version=version).config, built(algo, version=version, worker="dtensor_v2").config
    assert first["checkpointing"]["model_save_format"] is None
    assert "_v2" not in first["policy"]["dtensor_cfg"]
    assert second["policy"]["dtensor_cfg"]["_v2"] is True
    assert (second["checkpointing"]["model_save_format"], second["checkpointing"]["save_consolidated"]) == (
        "safetensors",
        True,
    )


@pytest.mark.parametrize("algo", ["sft", "dpo"])
@pytest.mark.parametrize("version", VERSIONS)
def test_megatron_takes_over_from_dtensor(algo: str, version: str) -> None:
    options = {"worker": "megatron", "tensor_parallel": 2, "pipeline_parallel": 2}
    config = built(algo, version=version, gpus=4, **options).config
    policy, megatron = config["policy"], config["policy"]["megatron_cfg"]
    assert policy["dtensor_cfg"] == {"enabled": False} and megatron["enabled"] is True
    assert policy["optimizer"] is None and "scheduler" not in policy
    assert (megatron["tensor_model_parallel_size"], megatron["pipeline_model_parallel_size"]) == (2, 2)
    assert policy["make_sequence_length_divisible_by"] == 2 and megatron["sequence_parallel"] is True
    assert config["checkpointing"]["model_save_format"] is None
    assert ("recompute_granularity" in megatron) == (version == "0.7.0")


@pytest.mark.parametrize("train", [1, 2, 64])
def test_megatrons_warm_up_ends_before_its_decay(train: int) -> None:
    scheduler = built("sft", worker="megatron", train=train).config["policy"]["megatron_cfg"]["scheduler"]
    assert scheduler["lr_warmup_iters"] < scheduler["lr_decay_iters"]


def test_lora_is_an_adapter_on_every_linear_layer() -> None:
    second = built("dpo", worker="dtensor_v2", lora_rank=8, lora_alpha=16).config["policy"]["dtensor_cfg"]["lora_cfg"]
    assert (second["enabled"], second["dim"], second["alpha"], second["match_all_linear"]) == (True, 8, 16, True)
    split = built("dpo", worker="dtensor_v2", lora_rank=8, tensor_parallel=2, gpus=2).config["policy"]
    assert split["dtensor_cfg"]["lora_cfg"]["use_triton"] is False
    megatron = built("dpo", worker="megatron", lora_rank=8).config["policy"]["megatron_cfg"]["peft"]
    assert (megatron["enabled"], megatron["dim"]) == (True, 8)


@pytest.mark.parametrize(
    ("algo", "options", "message"),
    [
        ("dpo", {"lora_rank": 8}, "dtensor_v2 or megatron"),
        ("sft", {"pipeline_parallel": 2, "gpus": 2}, "set to megatron"),
        ("rm", {"worker": "megatron"}, "no reward model with Megatron"),
        ("rm", {"worker": "dtensor_v2", "lora_rank": 8}, "new head"),
    ],
)
def test_what_a_worker_cannot_do_is_refused(algo: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        built(algo, **options)


@pytest.mark.parametrize("steps", [1, 2, 9, 200])
def test_the_learning_rate_rises_and_falls_within_the_steps(steps: int) -> None:
    rise, fall, milestones = built("sft", train=steps, batch_conversations=1).config["policy"]["scheduler"]
    (switch,) = milestones["milestones"]
    assert rise["kwargs"]["total_iters"] == switch
    assert steps == 1 or switch + fall["kwargs"]["total_iters"] == steps


def test_a_chat_row_is_learned_from_where_the_assistant_starts_to_write() -> None:
    data = built("sft").config["data"]
    assert (data["add_bos"], data["add_eos"], data["add_generation_prompt"]) == (True, True, True)
    assert data["train"]["processor"] == data["validation"]["processor"] == "sft_processor"


def test_a_reward_model_is_one() -> None:
    assert built("rm").config["policy"]["reward_model_cfg"] == {"enabled": True, "reward_model_type": "bradley_terry"}


def test_dpo_is_as_strict_as_asked() -> None:
    dpo = built("dpo", beta=0.3, sft_loss_weight=0.2).config["dpo"]
    assert (dpo["reference_policy_kl_penalty"], dpo["sft_loss_weight"]) == (0.3, 0.2)


def test_without_a_target_dpo_is_for_the_embedded_trainer() -> None:
    embedded = BUILDERS["dpo"](OPTIONS["dpo"](), rows("dpo"), Path("/c"), Path("/l"))
    assert embedded.config["policy"]["precision"] == "float32"
    assert built("dpo").config["policy"]["precision"] == Target().precision == "bfloat16"


def test_the_hash_is_of_the_settings_and_not_of_the_folders() -> None:
    def hash_of(folder: str, **options: Any) -> str:
        return BUILDERS["dpo"](OPTIONS["dpo"](**options), rows("dpo"), Path(folder), Path(folder)).config_hash

    assert hash_of("/a") == hash_of("/b") != hash_of("/a", beta=0.2)
