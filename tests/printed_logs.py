"""Lines as NeMo-RL prints them, for tests of whoever reads logs."""

from __future__ import annotations

RULE = "=" * 25
READY = f"\n{'=' * 60}\n{' ' * 18}SETUP COMPLETE\n{'=' * 60}\n\n"
MAX_STEPS = "Max number of steps has been reached, stopping training early\n"
TIMEOUT = "Timeout has been reached, stopping training early\n"

_PAIRS = ["loss", "accuracy", "rewards_chosen_mean", "rewards_rejected_mean"]
_DPO = ["loss", "sft_loss", "preference_loss", "accuracy", "rewards_chosen_mean", "rewards_rejected_mean"]
_DPO_COUNTS = ["num_valid_samples", "global_valid_seqs", "global_valid_toks"]


def epoch(number: int, total: int = 1) -> str:
    return f"\n{RULE} Epoch {number}/{total} {RULE}\n"


def header(number: int, total: int) -> str:
    return f"\n{RULE} Step {number}/{total} {RULE}\n"


def timing(seconds: float = 1.5, **parts: float) -> str:
    lines = "".join(f"  • {label}: {value:.2f}s ({100 * value / seconds:.1f}%)\n" for label, value in parts.items())
    return f"\n⏱️  Timing:\n  • Total step time: {seconds:.2f}s\n{lines}"


def results(*bullets: str) -> str:
    """The training block of one step."""
    return "\n📊 Training Results:\n" + "".join(f"  • {bullet}\n" for bullet in bullets)


def validation(step: int, *bullets: str, name: str | None = None, seconds: float = 1.25) -> str:
    """A validation, with the name of its set where the algorithm has several."""
    at, of = (f" for `{name}` set..", f" for `{name}` set") if name else ("...", "")
    lines = "".join(f"    • {bullet}\n" for bullet in bullets)
    return (
        f"▶ Starting validation at step {step}{at}\n\n📊 Validation Results{of}:\n{lines}"
        f"\n  ⏱️  Validation Timing{of}:\n    • Total validation time: {seconds:.2f}s\n"
    )


def saving(step: int) -> str:
    return f"Saving checkpoint for step {step}...\n"


def dpo_bullets(loss: float, samples: float = 2.0) -> list[str]:
    values = dict.fromkeys(_DPO, 0.0) | {"loss": loss, "preference_loss": loss} | dict.fromkeys(_DPO_COUNTS, samples)
    return [f"{name}: {value:.4f}" for name, value in values.items()]


def rm_bullets(loss: float, samples: int = 2) -> list[str]:
    values = dict.fromkeys(_PAIRS, 0.0) | {"loss": loss}
    return [*(f"{name}: {value:.4f}" for name, value in values.items()), f"num valid samples: {samples}"]


def step(number: int, total: int, *bullets: str, before: str = "", seconds: float = 1.5) -> str:
    """A whole step; `before`: what is printed ahead of its results (a validation, a save)."""
    flops = "  • Training FLOPS: 0.01 TFLOPS (0.01 TFLOPS per rank)\n"
    return header(number, total) + before + results(*bullets) + flops + timing(seconds, policy_training=seconds / 2)
