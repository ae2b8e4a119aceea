"""Rules of NeMo-RL for trainings on generated answers that no type expresses, checked after overrides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def rollout_rules(section: str) -> Callable[[dict[str, Any]], None]:
    """A check of a whole YAML. section: the algorithm's own. It raises `ValueError` (`structure`)."""

    def check(config: dict[str, Any]) -> None:
        own, policy = config[section], config["policy"]
        _batches(section, own, policy)
        _generation(policy)
        _validation(section, own, config["data"])
        if "loss_fn" in config and "ratio_clip_min" in config["loss_fn"]:
            _policy_gradient(section, own, policy, config["loss_fn"])

    return check


def _batches(section: str, own: dict[str, Any], policy: dict[str, Any]) -> None:
    samples = own["num_prompts_per_step"] * own["num_generations_per_prompt"]
    if samples % policy["train_global_batch_size"]:
        _refuse(
            f"policy.train_global_batch_size {policy['train_global_batch_size']} must divide the {samples} samples "
            f"of a step ({section}.num_prompts_per_step x num_generations_per_prompt); use the option updates_per_step"
        )
    if own["max_val_samples"] < own["val_batch_size"]:
        _refuse(
            f"{section}.val_batch_size {own['val_batch_size']} is more than max_val_samples {own['max_val_samples']}: "
            "validation would read no batch and report 0"
        )


def _generation(policy: dict[str, Any]) -> None:
    generation = policy["generation"]
    if generation["backend"] != "vllm":
        _refuse(f"policy.generation.backend {generation['backend']!r}: only vllm has its settings here")
    if not generation["colocated"]["enabled"]:
        _refuse("policy.generation.colocated.enabled must be true: generation and training share the devices here")
    if generation["vllm_cfg"]["async_engine"]:
        _refuse("policy.generation.vllm_cfg.async_engine must be false: rollouts are synchronous here")


def _validation(section: str, own: dict[str, Any], data: dict[str, Any]) -> None:
    if data["use_multiple_dataloader"]:
        _refuse("data.use_multiple_dataloader must be false: there is one training file")
    if data["validation"] is None and (own["val_period"] > 0 or own["val_at_start"] or own["val_at_end"]):
        _refuse(f"{section} validates without validation prompts; set val_period 0 and val_at_start, val_at_end false")


def _policy_gradient(section: str, own: dict[str, Any], policy: dict[str, Any], loss: dict[str, Any]) -> None:
    if own.get("async_grpo", {}).get("enabled"):
        _refuse("grpo.async_grpo.enabled must be false: it needs devices of its own for generation")
    if own["batch_multiplier"] != 1 and not own["use_dynamic_sampling"]:
        _refuse(f"{section}.batch_multiplier must be 1 without {section}.use_dynamic_sampling")
    estimator = own["adv_estimator"]["name"]
    if estimator in ("grpo", "gdpo") and own["num_generations_per_prompt"] < 2:
        _refuse(
            f"{section}.adv_estimator.name {estimator} compares the answers of one prompt: "
            "num_generations_per_prompt must be at least 2"
        )
    if own["skip_reference_policy_logprobs_calculation"] and loss["reference_policy_kl_penalty"]:
        _refuse(f"{section}.skip_reference_policy_logprobs_calculation needs loss_fn.reference_policy_kl_penalty 0")
    samples = own["num_prompts_per_step"] * own["num_generations_per_prompt"]
    if loss["force_on_policy_ratio"] and samples != policy["train_global_batch_size"]:
        _refuse("loss_fn.force_on_policy_ratio needs one update per step; set the option updates_per_step to 1")
    if loss["sequence_level_importance_ratios"] and loss["token_level_loss"]:
        _refuse("loss_fn.sequence_level_importance_ratios needs loss_fn.token_level_loss false")


def _refuse(text: str) -> None:
    raise ValueError(f"structure: {text}")
