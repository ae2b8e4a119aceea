"""Known failures of the configuration and of the training itself."""

from __future__ import annotations

from nvtrader_rl_dagster.nemo_rl.diagnosis.failure import Kind, KnownFailure

TRAINING = (
    KnownFailure(
        code="metric_name_prefix",
        title="checkpointing.metric_name without val: or train:",
        shows="AssertionError: metric_name=val_loss must start with 'val:' or 'train:'",
        meaning="The name is checked at the first save, and the run ends there without a checkpoint.",
        handled="The builders write the full name; overrides and preflight refuse another.",
        remedy="Write it with its prefix, such as val:validation-default_loss (DPO, RM), val:val_loss (SFT), "
        "val:accuracy (RL).",
        raised=(r"metric_name=.* must start with 'val:' or 'train:'",),
    ),
    KnownFailure(
        code="metric_name_unknown",
        title="checkpointing.metric_name is no metric of this training",
        shows="ValueError: Metric loss not found in val metrics",
        meaning="Names differ by algorithm and validation set, and are checked at the first save only.",
        handled="The builders write a name that the algorithm produces; overrides and preflight refuse another.",
        remedy="Use val:validation-default_loss (DPO, RM), val:val_loss (SFT), val:accuracy (RL), or null to keep the "
        "newest.",
        raised=(r"^ValueError: Metric .* not found in (val|train) metrics",),
    ),
    KnownFailure(
        code="save_format",
        title="model_save_format with the v1 worker",
        shows="ValueError: model_save_format must be None or omitted if using DTensorPolicyWorker (_v2=False).",
        meaning="Only the v2 worker writes safetensors. It is noticed at the first save.",
        handled="The builders keep the two together.",
        remedy="Set checkpointing.model_save_format: null, or policy.dtensor_cfg._v2: true.",
        raised=(r"model_save_format must be None or omitted",),
    ),
    KnownFailure(
        code="invalid_config",
        title="the trainer refuses the configuration",
        shows="pydantic_core._pydantic_core.ValidationError: 1 validation error for MasterConfig · ConfigError: "
        "config: 'dpo.val_period' is missing",
        meaning="NeMo-RL 0.7.0 and the embedded trainer check the YAML at start, and a key is missing or of the wrong "
        "type.",
        handled="The builders write every key of the version that the tree has.",
        remedy="Set the key that the message names; nvtrader-rl config ALGO --nemo-rl VERSION prints a complete YAML.",
        raised=(
            r"^(pydantic\S*\.)?ValidationError: \d+ validation errors? for [^\n]*(\n[^\n]*\n[^\n]*)?",
            r"^(\w+\.)*ConfigError: ",
        ),
    ),
    KnownFailure(
        code="invalid_override",
        title="an override that NeMo-RL does not take",
        shows="OverridesError: Failed to parse Hydra overrides: Could not override 'dpo.typo'.",
        meaning="Only an existing key can be set with key=value; a new one needs ++key=value, and --option=value is "
        "no override.",
        handled="The bridge writes everything into one YAML and passes no override; its own are checked against the "
        "known keys.",
        remedy="Correct the key; nvtrader-rl config ALGO --set key=value names the nearest one.",
        raised=(r"OverridesError", r"^hydra\.errors\.\w+", r"^omegaconf\.errors\.Config(Attribute|Key)Error"),
    ),
    KnownFailure(
        code="interpolation",
        title="an interpolation that this script does not know",
        shows="omegaconf.errors.UnsupportedInterpolationType: Unsupported interpolation type mul",
        meaning="run_dpo.py, run_rm.py and run_eval.py do not register ${mul:…}, ${div:…} and ${max:…}.",
        handled="The builders write plain numbers.",
        remedy="Write the number.",
        raised=(r"^omegaconf\.errors\.(UnsupportedInterpolationType|Interpolation\w+)",),
    ),
    KnownFailure(
        code="vocabulary_mismatch",
        title="student and teacher have different vocabularies",
        shows="AssertionError: Token->ID mapping differs between student and teacher.",
        meaning="Distillation compares logits token by token.",
        remedy="Take a teacher of the same model family. NRL_SKIP_DISTILLATION_TOKENIZER_CHECK=true only if you know "
        "that they are equal.",
        raised=(r"differs? between student and teacher",),
    ),
    KnownFailure(
        code="dynamic_sampling",
        title="dynamic sampling found no prompts with mixed rewards",
        shows="ValueError: Dynamic sampling has reached the maximum allowed number of batches (10).",
        meaning="DAPO throws away prompts whose answers all get the same reward, and too few were left.",
        remedy="Look at the rewards: a constant reward teaches nothing. Else raise "
        "grpo.dynamic_sampling_max_gen_batches or num_generations_per_prompt, or turn use_dynamic_sampling off.",
        raised=(r"Dynamic sampling has reached the maximum", r"Dynamic sampling reached max_gen_batches"),
    ),
    KnownFailure(
        code="single_reward",
        title="GDPO with one reward",
        shows="ValueError: GDPO requires multiple reward components (reward1, reward2, ...).",
        meaning="The environment returned a vector of rewards instead of a table.",
        remedy="Use an environment that returns rewards of shape [batch, n], or train with grpo.",
        raised=(r"GDPO requires multiple reward components",),
    ),
    KnownFailure(
        code="nvml_free_memory",
        title="NVML does not report free memory",
        shows="RuntimeError: Failed to get free memory for device 0 (global index: 0): Not Supported",
        meaning="A GB10 shares its memory with the CPU, and NVML answers Not Supported. GRPO, PPO and distillation "
        "ask at the first hand-over of weights to vLLM.",
        handled="The bridge's driver reads the unified memory instead, and says so in the log.",
        remedy="Start the training through the bridge (nvtrader-rl or the assets), not NeMo-RL's script by hand.",
        raised=(r"Failed to get free memory for device",),
    ),
    KnownFailure(
        code="refit",
        title="weights did not reach vLLM",
        shows="RuntimeError: ❌ Error: Updating weights for the generation policy failed during refit.",
        meaning="The hand-over from the training workers to vLLM failed; the worker printed why.",
        remedy="Look for the first error of a vLLM or policy worker above it; often it is memory.",
        raised=(r"Updating weights for the generation policy failed", r"Weight transfer failed during"),
        kind=Kind.SYMPTOM,
    ),
    KnownFailure(
        code="wandb_key",
        title="Weights & Biases without a key",
        shows="wandb.errors.errors.UsageError: No API key configured. Use `wandb login` to log in.",
        meaning="The reference YAMLs of SFT and RM turn wandb on.",
        handled="The builders turn all loggers off unless they are asked for; without the key the bridge sets "
        "WANDB_MODE=offline.",
        remedy="Set logger.wandb_enabled: false, or pass the key: NVTRADER_NEMORL_PASS_ENV=WANDB_API_KEY.",
        raised=(
            r"No API key configured",
            r"api_key not configured",
            r"^wandb\.errors\.\S*(UsageError|AuthenticationError)",
        ),
    ),
    KnownFailure(
        code="checkpoint_load",
        title="a checkpoint does not fit the model",
        shows="CheckpointException ranks:dict_keys([0]) · Missing key in checkpoint state_dict · size mismatch for",
        meaning="The folder holds checkpoints of another model or another worker type, or one that is damaged. "
        "NeMo-RL always goes on from the newest step_<n> in checkpoint_dir.",
        handled="The bridge refuses a folder whose checkpoints come from another model, batch or data "
        "(checkpoint_mismatch).",
        remedy="Use a new checkpoint_dir, or remove the newest step_<n>.",
        raised=(
            r"Missing key in checkpoint state_dict",
            r"size mismatch for|Size mismatch between saved",
            r"Error\(s\) in loading state_dict",
            r"global metadata read failed",
            r"PytorchStreamReader failed",
            r"CheckpointException",
        ),
    ),
    KnownFailure(
        code="nan_loss",
        title="the loss is not a number",
        shows="loss: nan · probability tensor contains either `inf`, `nan` or element < 0",
        meaning="The weights are spoilt from that step on; nothing later repairs them.",
        handled="A run that ends with such a loss has failed, whatever its exit code.",
        remedy="Lower the learning rate, train in bfloat16 rather than float16, set max_grad_norm: 1.0, and look for "
        "rows that are empty after tokenization.",
        raised=(
            r"probability tensor contains either",
            r"(loss|gradients?|grad_norm) (is|are|became) (NaN|nan|not finite)",
        ),
    ),
    KnownFailure(
        code="missing_config_key",
        title="a key is missing in the configuration",
        shows="KeyError: 'val_period'",
        meaning="NeMo-RL 0.6.0 does not check the YAML at start; a missing key ends the run when it is first read.",
        handled="The builders write every key that the version reads.",
        remedy="Set the key that the line names; nvtrader-rl config ALGO prints a complete YAML.",
        raised=(r"^KeyError: '\w+'",),
        frames=r"\w*(config|cfg)\w*(\[|\.)",
    ),
    KnownFailure(
        code="refused_config",
        title="NeMo-RL refuses a combination of settings",
        shows="AssertionError: … from setup() of the algorithm or the policy",
        meaning="A check at the start of NeMo-RL says which settings do not go together.",
        handled="The builders write combinations that go together; preflight checks the rest.",
        remedy="Change what the message names; nvtrader-rl config ALGO prints settings that go together.",
        raised=(r"^(AssertionError|ValueError): \S",),
        frames=r"nemo_rl/(algorithms/\w+\.py.*, in setup|models/policy/lm_policy\.py.*, in __init__)",
    ),
    KnownFailure(
        code="zero_steps",
        title="nothing was trained",
        shows="exit code 0 without one training step",
        meaning="NeMo-RL ends with 0 when the rows do not fill one batch, when max_num_steps is 0, and when a "
        "finished run is resumed.",
        handled="Such a run has failed. The batch is made smaller when there are fewer pairs.",
        remedy="Import more feedback, or set a smaller batch_pairs.",
        kind=Kind.STATE,
    ),
    KnownFailure(
        code="no_score",
        title="a benchmark ended without a score",
        shows="exit code 0 of run_eval.py without a line score=",
        meaning="NeMo-RL prints the score of a benchmark and writes it nowhere else. Without it nothing was measured.",
        handled="Such a run has failed. An evaluation needs no training step and no checkpoint.",
        remedy="The benchmark did not finish; run it again and keep its whole output.",
        kind=Kind.STATE,
    ),
    KnownFailure(
        code="no_checkpoint",
        title="no checkpoint was written",
        shows="exit code 0 without a folder step_<n>",
        meaning="Steps were made, and none was saved completely.",
        remedy="Look into the log; save_period must not be larger than the number of steps.",
        kind=Kind.STATE,
    ),
    KnownFailure(
        code="stalled",
        title="no new step for too long",
        shows="the last step header, and then nothing",
        meaning="A worker waits for one that is gone, an environment is built, or the driver hangs at shutdown after "
        "an error (Python 3.11 does).",
        handled="The supervisor ends it after the stall limit (or only warns), and the failure quotes the error if "
        "the log has one.",
        remedy="Read the last lines of the log. Raise the stall limit when steps are that slow.",
        kind=Kind.STATE,
    ),
)
