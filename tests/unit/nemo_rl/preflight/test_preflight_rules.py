"""One change to a good configuration, one finding: validation, metric, workers, rollouts, loggers, keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from looking import EMBEDDED, case_of, changed, codes, complete, look, make_tree, nemo_rl

from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.preflight import capacity
from nvtrader_rl_dagster.nemo_rl.preflight.logger_checks import check_loggers
from nvtrader_rl_dagster.nemo_rl.preflight.report import Level

Good = dict[str, dict[str, Any]]
ALGORITHMS = ("dpo", "sft", "rm", "grpo", "distillation")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    """A configuration of each algorithm that nothing is wrong with."""
    folder = tmp_path_factory.mktemp("good")
    return {algo: complete(folder / algo, algo) for algo in ALGORITHMS}


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return nemo_rl(make_tree(tmp_path_factory.mktemp("tree") / "nemo-rl"))


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("version", ["0.6.0", "0.7.0"])
def test_what_the_bridge_builds_is_accepted(algo: str, version: str, tmp_path: Path) -> None:
    tree = nemo_rl(make_tree(tmp_path / "tree", version))
    report = look(algo, complete(tmp_path / "run", algo, version), tree)
    assert report.accepted and report.version == version, report.text()
    assert codes(report, Level.WARN) == ["tree_unknown"], report.text()
    assert report.steps and report.memory and report.disk


@pytest.mark.parametrize(
    ("algo", "changes", "code"),
    [
        # validation
        (
            "sft",
            {"data.validation": None, "sft.val_period": 5, "checkpointing.metric_name": None},
            "no_validation_data",
        ),
        ("grpo", {"data.validation": None, "grpo.val_period": 5}, "no_validation_data"),
        ("grpo", {"data.validation": None, "grpo.val_period": 0, "grpo.val_at_end": True}, "no_validation_data"),
        ("grpo", {"grpo.val_period": 5, "grpo.max_val_samples": 3, "grpo.val_batch_size": 4}, "empty_validation"),
        # the metric that ranks checkpoints
        ("dpo", {"checkpointing.metric_name": "validation-default_loss"}, "metric_name"),
        ("dpo", {"checkpointing.metric_name": "val:val_loss"}, "metric_name"),
        ("dpo", {"checkpointing.metric_name": "val:validation-other_loss"}, "metric_name"),
        ("rm", {"checkpointing.metric_name": "val:validation-default_sft_loss"}, "metric_name"),
        ("sft", {"checkpointing.metric_name": "val:accuracy"}, "metric_name"),
        # workers
        ("dpo", {"policy.megatron_cfg.enabled": True}, "backend"),
        ("dpo", {"policy.dtensor_cfg.enabled": False}, "backend"),
        ("dpo", {"policy.sequence_packing.enabled": True}, "packing"),
        ("dpo", {"policy.dynamic_batching.enabled": True}, "packing"),
        ("rm", {"policy.sequence_packing.enabled": True}, "packing"),
        ("sft", {"policy.sequence_packing.enabled": True, "policy.dynamic_batching.enabled": True}, "packing"),
        ("dpo", {"policy.dtensor_cfg._v2": False, "policy.dtensor_cfg.lora_cfg": {"enabled": True}}, "lora"),
        ("dpo", {"policy.dtensor_cfg._v2": False, "checkpointing.model_save_format": "safetensors"}, "save_format"),
        ("dpo", {"policy.dtensor_cfg._v2": False, "policy.scheduler": None}, "scheduler"),
        ("dpo", {"policy.dtensor_cfg.env_vars": {"A": "1"}}, "env_vars"),
        ("distillation", {"teacher.dtensor_cfg.env_vars": {"A": "1"}}, "env_vars"),
        ("dpo", {"policy.dtensor_cfg.tensor_parallel_size": 2}, "world_size"),
        ("dpo", {"cluster.gpus_per_node": 3, "policy.dtensor_cfg.context_parallel_size": 2}, "world_size"),
        ("dpo", {"policy.train_global_batch_size": 15, "policy.train_micro_batch_size": 2}, "batch_size"),
        (
            "grpo",
            {
                "cluster.gpus_per_node": 4,
                "policy.dtensor_cfg.tensor_parallel_size": 4,
                "policy.logprob_batch_size": 8,
                "policy.train_micro_batch_size": 4,
                "loss_fn.force_on_policy_ratio": False,
            },
            "tensor_parallel",
        ),
        # rollouts
        ("grpo", {"data.train.env_name": "house", "data.default.env_name": ...}, "environment"),
        ("grpo", {"env.house": {"a": 1}, "data.train.env_name": "house"}, "environment"),
        ("grpo", {"grpo.batch_multiplier": 2, "grpo.use_dynamic_sampling": False}, "batch_multiplier"),
        ("grpo", {"policy.train_global_batch_size": 7}, "batch_size"),
        ("grpo", {"data.train.processor": "multichoice_qa_processor"}, "processor"),
        # prompt files
        ("grpo", {"data.train.prompt_file": "/no/such/prompt.txt"}, "prompt_file"),
        # loggers and keys
        ("dpo", {"logger.wandb_enabled": True, "logger.wandb": {"mode": "online"}}, None),
        ("dpo", {"policy.max_grad_norm": ...}, "missing_keys"),
        ("grpo", {"grpo.overlong_filtering": ...}, "missing_keys"),
        ("dpo", {"logger.tensorboard_enabled": True, "logger.tensorboard": ...}, "missing_keys"),
        # models
        ("dpo", {"policy.model_name": "builtin:tiny"}, "builtin_model"),
        ("dpo", {"policy.model_name": "/no/such/model"}, "model_missing"),
        ("dpo", {"policy.model_name": "org/name", "policy.tokenizer.name": "org/name"}, "hub_offline"),
        ("dpo", {"policy.tokenizer.name": "/no/such/model"}, "tokenizer_missing"),
        ("dpo", {"policy.tokenizer.chat_template": "/no/such/chat.jinja"}, "no_chat_template"),
        # interpolations
        ("dpo", {"policy.train_global_batch_size": "${mul:2,5}"}, "resolvers"),
    ],
)
def test_a_change_that_ends_the_run_is_refused(
    good: Good, trainer: Trainer, algo: str, changes: dict[str, Any], code: str | None
) -> None:
    report = look(algo, changed(good[algo], changes), trainer)
    assert (code in codes(report)) if code else codes(report) == [], report.text()
    assert all(finding.remedy for finding in report.refusals)


@pytest.mark.parametrize(
    ("algo", "changes", "code"),
    [
        ("dpo", {"data.validation": None}, "no_validation_data"),
        ("dpo", {"data.validation": None}, "metric_without_data"),
        ("dpo", {"dpo.val_period": 0, "dpo.val_at_start": False, "dpo.val_at_end": False}, "never_validated"),
        ("dpo", {"checkpointing.higher_is_better": True}, "metric_direction"),
        ("grpo", {"checkpointing.higher_is_better": False}, "metric_direction"),
        ("grpo", {"checkpointing.metric_name": "val:my_own"}, "metric_name"),
        ("dpo", {"checkpointing.save_period": 3, "dpo.val_period": 2, "dpo.max_num_steps": 20}, "metric_missing"),
        (
            "dpo",
            {"checkpointing.save_period": 3, "dpo.val_at_end": False, "dpo.max_num_steps": 20},
            "metric_missing_at_end",
        ),
        ("sft", {"data.train.system_prompt_file": "model/config.json"}, "system_prompt_file"),
        ("grpo", {"data.train.processor": "mine", "env.own": {"class_path": "my.Env"}}, "processor"),
    ],
)
def test_a_change_that_only_misleads_is_warned_of(
    good: Good, trainer: Trainer, algo: str, changes: dict[str, Any], code: str
) -> None:
    if "data.train.system_prompt_file" in changes:
        changes = {"data.train.system_prompt_file": good[algo]["policy"]["model_name"] + "/config.json"}
    report = look(algo, changed(good[algo], changes), trainer)
    assert code in codes(report, Level.WARN) and codes(report) == [], report.text()


@pytest.mark.parametrize(
    ("algo", "changes"),
    [
        ("dpo", {"checkpointing.metric_name": None}),
        ("dpo", {"checkpointing.metric_name": "train:loss"}),
        (
            "dpo",
            {"checkpointing.metric_name": "val:validation-default_accuracy", "checkpointing.higher_is_better": True},
        ),
        ("rm", {"checkpointing.metric_name": "val:validation-default_num_valid_samples"}),
        ("dpo", {"cluster.gpus_per_node": 2, "policy.dtensor_cfg.tensor_parallel_size": 2}),
        (
            "grpo",
            {"env.house": {"class_path": "my.House"}, "data.default.env_name": "house", "data.train.env_name": "house"},
        ),
        ("sft", {"policy.train_global_batch_size": "${mul:2,5}"}),
        ("dpo", {"policy.max_total_sequence_length": "${data.max_input_seq_length}"}),
    ],
)
def test_a_change_that_is_fine_is_accepted(good: Good, trainer: Trainer, algo: str, changes: dict[str, Any]) -> None:
    report = look(algo, changed(good[algo], changes), trainer)
    assert codes(report) == [] and codes(report, Level.WARN) == ["tree_unknown"], report.text()


def test_prompts_in_training_and_validation_are_counted(good: Good, trainer: Trainer) -> None:
    same = good["dpo"]["data"]["train"]["data_path"]
    report = look("dpo", changed(good["dpo"], {"data.validation.data_path": same}), trainer)
    (finding,) = (finding for finding in report.findings if finding.code == "overlap")
    assert finding.message.startswith("20 of 20 prompts of default") and finding.level is Level.WARN


def test_a_prompt_file_with_other_braces_is_refused(good: Good, trainer: Trainer, tmp_path: Path) -> None:
    for text, code, level in (
        ("Answer {}", None, Level.REFUSE),
        ('Answer as {"x": 1}: {}', "prompt_file", Level.REFUSE),
        ("Answer.", "prompt_file", Level.WARN),
    ):
        file = tmp_path / "prompt.txt"
        file.write_text(text)
        report = look("grpo", changed(good["grpo"], {"data.train.prompt_file": str(file)}), trainer)
        assert codes(report, level).count("prompt_file") == (code is not None), text


def test_an_interpolation_that_leads_nowhere_is_refused(good: Good) -> None:
    report = look("dpo", changed(good["dpo"], {"dpo.seed": "${nothing.there}"}), EMBEDDED)
    assert codes(report) == ["configuration"] and "nothing.there" in report.refusals[0].message


def test_wandb_needs_a_key_or_to_be_off_line(good: Good, trainer: Trainer, tmp_path: Path) -> None:
    config = changed(good["dpo"], {"logger.wandb_enabled": True, "logger.monitor_gpus": True})
    case = case_of("dpo", config, trainer.source)
    assert case.environment["WANDB_MODE"] == "offline"
    assert [f.code for f in check_loggers(case, False)] == []
    assert [f.code for f in check_loggers(case, True)] == ["monitor_gpus"]
    online = {**case.environment, "WANDB_MODE": "online", "HOME": str(tmp_path)}
    (finding,) = check_loggers(replace(case, environment=online), False)
    assert (finding.level, finding.code) == (Level.REFUSE, "wandb_key")
    (tmp_path / ".netrc").touch()
    assert not list(check_loggers(replace(case, environment=online), False))


def test_the_megatron_worker_needs_the_list_of_architectures(
    good: Good, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"policy.dtensor_cfg.enabled": False, "policy.megatron_cfg.enabled": True}
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    assert codes(look("dpo", changed(good["dpo"], changes), trainer)) == ["cuda_arch_list"]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "12.1")
    assert codes(look("dpo", changed(good["dpo"], changes), trainer)) == []


def test_a_reward_model_of_its_own_takes_gpus_from_the_policy(good: Good, trainer: Trainer) -> None:
    own = {
        "env.reward_model": {"model_name": good["grpo"]["policy"]["model_name"], "resources": {"gpus_per_node": 1}},
        "data.default.env_name": "reward_model",
        "data.train.env_name": "reward_model",
    }
    assert "world_size" in codes(look("grpo", changed(good["grpo"], own), trainer))
    assert codes(look("grpo", changed(good["grpo"], {**own, "cluster.gpus_per_node": 2}), trainer)) == []


def test_a_check_that_breaks_is_a_warning_and_the_others_go_on(good: Good, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(capacity, "check_disk", broken)
    report = look("dpo", good["dpo"], EMBEDDED)
    assert codes(report, Level.WARN) == ["unchecked"] and "disk could not be checked" in report.warnings[0].message
    assert report.steps


def test_sections_of_the_wrong_kind_break_no_check(trainer: Trainer) -> None:
    config = {"policy": None, "data": [], "dpo": 5, "checkpointing": "x", "logger": None, "cluster": {}}
    report = look("dpo", config, trainer)
    assert "missing_keys" in codes(report) and "unchecked" not in codes(report, Level.WARN), report.text()


def test_every_missing_key_is_named_and_those_with_a_default_in_a_release_are_warned_of(
    good: Good, trainer: Trainer, tmp_path: Path
) -> None:
    poor = changed(good["dpo"], {"policy.precision": ..., "cluster": ..., "checkpointing.keep_top_k": ...})
    typed, traced = look("dpo", poor, trainer).refusals
    assert "cluster.gpus_per_node, cluster.num_nodes, policy.precision;" in typed.message
    assert "missing keys: checkpointing.keep_top_k;" in traced.message
    later = look("dpo", changed(poor, {"dpo.seed": ...}), nemo_rl(make_tree(tmp_path / "tree", "0.7.0")))
    assert codes(later) == ["missing_keys"] and "missing_keys" in codes(later, Level.WARN)
    assert "dpo.seed" not in later.refusals[0].message


def test_parents_are_merged_before_anything_is_checked(good: Good, trainer: Trainer, tmp_path: Path) -> None:
    parent = tmp_path / "parent.yaml"
    parent.write_text(yaml.safe_dump(changed(good["dpo"], {"dpo.max_num_steps": 0})))
    child = {"defaults": str(parent), "dpo": {"max_num_steps": 1}}
    assert codes(look("dpo", child, trainer)) == []
    assert codes(look("dpo", {"defaults": str(parent)}, trainer)) == ["zero_steps"]
    report = look("dpo", {"defaults": str(tmp_path / "none.yaml")}, trainer)
    assert codes(report) == ["configuration"] and "none.yaml: no such file" in report.refusals[0].message
