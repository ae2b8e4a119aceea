"""One vocabulary of metric names for every algorithm, NeMo-RL version and source (printed lines, TensorBoard tags).

A name is NeMo-RL's own key where it has one (so that `checkpointing.metric_name` and a curve agree), without the
slashes, and without the parts that only say where it was printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

Split = Literal["train", "validation"]

#: Name -> what it is. A metric of a later version that is not here keeps its own name.
METRIC_NAMES: Mapping[str, str] = {
    "loss": "what the optimizer minimizes",
    "accuracy": "share of pairs ranked right (DPO, RM); mean reward of the answers (validation of the others)",
    "preference_loss": "the preference part of the DPO loss; ln 2 where policy and reference are equal",
    "sft_loss": "the supervised part of the DPO loss",
    "rewards_chosen_mean": "mean implicit (DPO) or given (RM) reward of chosen answers",
    "rewards_rejected_mean": "the same of rejected answers",
    "num_valid_samples": "samples that were not masked",
    "num_unmasked_tokens": "tokens in the loss",
    "num_samples": "answers that a validation or benchmark scored",
    "global_valid_seqs": "sequences in the loss, over all workers",
    "global_valid_toks": "tokens in the loss, over all workers",
    "grad_norm": "norm of the gradient before clipping",
    "lr": "learning rate",
    "wd": "weight decay",
    "reward": "mean reward of all answers of the step",
    "filtered_reward": "mean reward of the answers that dynamic sampling kept",
    "kl_penalty": "KL divergence from the reference policy",
    "gen_kl_error": "KL divergence between the generating engine and the policy in training",
    "policy_kl_error": "the same in the other direction",
    "js_divergence_error": "Jensen-Shannon divergence of the two",
    "token_mult_prob_error": "mean factor between their token probabilities",
    "sampling_importance_ratio": "mean importance weight of that difference",
    "approx_entropy": "estimated entropy of the policy, in nats a token",
    "probs_ratio": "mean ratio of new to old token probabilities",
    "probs_ratio_min": "smallest of them",
    "probs_ratio_max": "largest of them",
    "probs_ratio_clamped": "mean ratio after clipping",
    "probs_ratio_clamped_min": "smallest of them",
    "probs_ratio_clamped_max": "largest of them",
    "advantages_mean": "mean advantage",
    "advantages_max": "largest advantage",
    "advantages_min": "smallest advantage",
    "advantages_sum": "sum of advantages",
    "baseline_reward_pct_0": "percentage of prompts whose answers all have reward 0",
    "baseline_reward_pct_1": "percentage of prompts whose answers all have reward 1",
    "baseline_reward_pct_mixed": "percentage of the other prompts",
    "draft_loss": "loss of the draft model of speculative decoding",
    "mean_prompt_length": "tokens a prompt",
    "total_num_tokens": "tokens of the step",
    "mean_total_tokens_per_sample": "tokens of prompt and answer, a sample",
    "mean_gen_tokens_per_sample": "tokens generated, a sample",
    "max_gen_tokens_per_sample": "most tokens generated in a sample",
    "avg_length": "tokens generated, a validation sample",
    "truncation_rate": "share of answers cut at the length limit",
    "natural_termination_rate": "share of answers that ended themselves",
    "avg_turns_per_sample": "turns a sample",
    "max_turns_per_sample": "most turns of a sample",
    "max_turns_reached_rate": "share of samples that used all turns",
    "total_turns": "turns of the step",
    "mean_env_tokens_per_sample": "tokens that the environment added, a sample",
    "max_seq_mult_prob_error": "largest factor between the token probabilities of a sequence",
    "num_masked_seqs_by_logprob_error": "sequences masked because that factor was too large",
    "masked_correct_pct": "share of them that had reward 1",
    "dynamic_sampling_num_gen_batches": "batches generated to fill this step",
    "dynamic_sampling_num_discarded_valid_samples": "usable samples that did not fit into this step",
    "buffer_size": "trajectories in the replay buffer",
    "avg_trajectory_age": "age of the trajectories, in steps",
    "critic_loss": "loss of the value model",
    "critic_grad_norm": "norm of its gradient",
    "critic_lr": "its learning rate",
    "critic_vf_clipfrac": "share of its predictions that were clipped",
    "critic_explained_var": "share of the variance of returns that it explains",
    "score": "share of a benchmark that was solved",
    "step_seconds": "wall time of the step",
    "validation_seconds": "wall time of the validation",
    "valid_tokens_per_sec_per_gpu": "tokens in the loss, a second and GPU",
    "tokens_per_sec": "tokens of the step, a second",
    "samples_per_sec": "samples of the step, a second",
    "train_flops_per_gpu": "10^12 floating point operations a second and GPU while training",
    "train_fp_utilization": "share of what the GPU could do",
}
#: Before the label of a timed part of a step: `seconds/policy_training`.
PART_PREFIX = "seconds/"

_PRINTED = {
    "generation_kl_error": "gen_kl_error",
    "avg_reward": "reward",
    "avg_total_reward": "reward",
    "avg_filtered_reward": "filtered_reward",
    "mean_generation_length": "mean_gen_tokens_per_sample",
    "average_response_length": "avg_length",
    "samples_processed": "num_samples",
    "policy_loss": "loss",
    "critic_clip_frac": "critic_vf_clipfrac",
}
_TAG = re.compile(r"(?:(timing)/)?(?:(train|performance)|validation(?:-([^/]+))?)/(.+)")
_TIMED = {"total_step_time": "step_seconds", "total_validation_time": "validation_seconds"}


@lru_cache(maxsize=1024)
def printed_name(label: str) -> str:
    """The name of a metric printed as `label`, such as `Avg Reward`."""
    own = label.strip().replace(" ", "_").lower()
    return _PRINTED.get(own, own)


@lru_cache(maxsize=1024)
def part_name(label: str) -> str:
    """The name of a timed part printed as `label`: the total of a step or validation, or one part."""
    return _TIMED.get(label.lower().replace(" ", "_"), PART_PREFIX + label)


def tag_name(tag: str) -> tuple[Split, str | None, str] | None:
    """Split, validation set and name of a TensorBoard tag; None for a tag that is no metric of training."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return None
    timed, training, set_name, key = match.groups()
    if timed and key != "valid_tokens_per_sec_per_gpu":
        name = _TIMED.get(key, PART_PREFIX + key)
    else:
        name = "loss" if key == "val_loss" else key.replace("/", "_")
    return ("train", None, name) if training else ("validation", set_name or "default", name)
