"""Train and validation by prompt hash, so that a prompt never changes sides between rounds."""

from __future__ import annotations

from typing import Literal

Split = Literal["train", "validation"]

#: Share of prompts held out. One number for every round: raising it later would move prompts that
#: an earlier champion was trained on into the held-out side.
VALIDATION_FRACTION = 0.2


def split_of(prompt_hash: str, validation_fraction: float = VALIDATION_FRACTION) -> Split:
    """Side of a prompt. `prompt_hash` is a hex digest of at least 8 digits."""
    return "validation" if int(prompt_hash[:8], 16) < validation_fraction * 0x1_0000_0000 else "train"
