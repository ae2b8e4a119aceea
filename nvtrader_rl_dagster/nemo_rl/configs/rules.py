"""Structural rules of NeMo-RL that no type expresses; each is an exception or a lost checkpoint in a run."""

from __future__ import annotations

from typing import Any

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


def check_structure(algo: str, config: dict[str, Any], target: Target) -> None:
    """Raises `ValueError` (`structure`) with the rule, the keys and the remedy. Without a policy there is none."""
    if "policy" not in config:
        return
    policy = config["policy"]
    _worker(policy, config["checkpointing"])
    _devices(policy, config["cluster"])
    if algo == "dpo":
        for key in ("dynamic_batching", "sequence_packing"):
            if policy[key]["enabled"]:
                _refuse(f"policy.{key}.enabled must be false: DPO needs a pair's rows in their order")
    _periods(config, ALGOS[algo].release(target.version).section)
    _metric(algo, config)


def _worker(policy: dict[str, Any], checkpointing: dict[str, Any]) -> None:
    dtensor, megatron = policy["dtensor_cfg"], policy["megatron_cfg"]
    if dtensor["enabled"] == megatron["enabled"]:
        _refuse(
            "exactly one of policy.dtensor_cfg.enabled and policy.megatron_cfg.enabled must be true; choose with the "
            "option worker"
        )
    second = dtensor["enabled"] and dtensor.get("_v2", False)
    if dtensor.get("lora_cfg", {}).get("enabled") and not second:
        _refuse("LoRA needs the second DTensor worker; set the option worker to dtensor_v2")
    if checkpointing.get("model_save_format") is not None and not second:
        _refuse("checkpointing.model_save_format must be null: only the worker dtensor_v2 has a choice")
    if policy["dynamic_batching"]["enabled"] and policy["sequence_packing"]["enabled"]:
        _refuse("policy.dynamic_batching and policy.sequence_packing exclude each other")
    if dtensor["enabled"]:
        if not policy.get("optimizer"):
            _refuse("policy.optimizer cannot be null with a DTensor worker")
        if "scheduler" in policy and policy["scheduler"] is None:
            _refuse("policy.scheduler cannot be null, only absent")


def _devices(policy: dict[str, Any], cluster: dict[str, Any]) -> None:
    if policy["dtensor_cfg"]["enabled"]:
        section, pipeline = policy["dtensor_cfg"], 1
        tensor = section["tensor_parallel_size"]
    else:
        section = policy["megatron_cfg"]
        tensor, pipeline = section["tensor_model_parallel_size"], section["pipeline_model_parallel_size"]
    per_copy = tensor * pipeline * section["context_parallel_size"]
    gpus = cluster["gpus_per_node"] * cluster["num_nodes"]
    if gpus % per_copy:
        _refuse(f"{gpus} GPUs cannot hold copies of a model on {per_copy} each (tensor x pipeline x context parallel)")
    if (
        tensor >= 4
        and policy.get("logprob_batch_size", policy["train_micro_batch_size"]) != (policy["train_micro_batch_size"])
    ):
        _refuse(
            "from 4 tensor-parallel GPUs on, policy.logprob_batch_size must equal policy.train_micro_batch_size: "
            "NeMo-RL refuses the run for its accuracy"
        )
    batch, micro, replicas = policy["train_global_batch_size"], policy["train_micro_batch_size"], gpus // per_copy
    packed = policy["dynamic_batching"]["enabled"] or policy["sequence_packing"]["enabled"]
    if batch % replicas or (batch % (replicas * micro) and not packed):
        _refuse(
            f"policy.train_global_batch_size {batch} must be a multiple of {replicas} data-parallel devices x "
            f"policy.train_micro_batch_size {micro}"
        )


def _periods(config: dict[str, Any], section: str) -> None:
    own, checkpointing = config[section], config["checkpointing"]
    for key in ("max_num_steps", "max_num_epochs"):
        if own[key] < 1:
            _refuse(f"{section}.{key} must be at least 1, else nothing is trained")
    if checkpointing["save_period"] < 1:
        _refuse("checkpointing.save_period must be at least 1")
    period, save_period = own["val_period"], checkpointing["save_period"]
    if str(checkpointing["metric_name"]).startswith("val:") and period > 0 and save_period % period:
        _refuse(
            f"checkpointing.save_period {save_period} must be a multiple of {section}.val_period {period}, else "
            "checkpoints have no metric to be ranked by"
        )


def _metric(algo: str, config: dict[str, Any]) -> None:
    """The metric that ranks checkpoints: NeMo-RL looks for it at the first save and fails when it is not there."""
    full_name = config["checkpointing"]["metric_name"]
    if full_name is None:
        return
    split, _, name = full_name.partition(":")
    if split not in ("val", "train") or not name:
        _refuse(f"checkpointing.metric_name {full_name!r} must start with val: or train:, else the first save fails")
    known = {f"train:{spec.name}": spec for spec in ALGOS[algo].train_metrics}
    if split == "val":
        if not config["data"].get("validation"):
            _refuse(f"checkpointing.metric_name {full_name!r} needs a validation set, and there is none")
        known = {ALGOS[algo].full_name(spec.name): spec for spec in ALGOS[algo].validation_metrics}
        if full_name not in known:
            _refuse(
                f"checkpointing.metric_name {full_name!r} is not measured by {algo}; it measures {', '.join(known)}"
            )
    better = known[full_name].better if full_name in known else None
    if better and (better == "higher") != config["checkpointing"]["higher_is_better"]:
        _refuse(f"checkpointing.higher_is_better must be {str(better == 'higher').lower()} for {full_name}")


def _refuse(text: str) -> None:
    raise ValueError(f"structure: {text}")
