"""Threads and the float32 matrix product of this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section

# Longer rows save gradient accumulations and cost attention: 400 to 768 differ by less than a fifth.
DEFAULT_PACK_TOKENS = 512


@dataclass(frozen=True)
class Compute:
    """What ``policy.local_trainer`` asked for, after defaults."""

    threads: int
    matmul: str
    pack_tokens: int

    def describe(self) -> str:
        return f"{self.threads} threads, float32, matmul {self.matmul}, up to {self.pack_tokens} tokens a row"


def set_up_compute(settings: Section) -> Compute:
    """Apply threads and matmul precision of ``{threads, matmul, pack_tokens}``; each has a default.

    ``matmul: auto`` lets float32 products run in oneDNN ("medium", measured 2x faster than MKL) where the CPU has
    AVX-512 but no AMX: with AMX "medium" may really compute in bfloat16, so "highest" is kept there.
    """
    threads = settings.get("threads", int, torch.get_num_threads())
    pack_tokens = settings.get("pack_tokens", int, DEFAULT_PACK_TOKENS)
    matmul = settings.get("matmul", str, "auto")
    if threads < 1 or pack_tokens < 1:
        raise ConfigError(f"config: '{settings.path}': threads and pack_tokens must be at least 1.")
    if matmul not in ("auto", "highest", "medium"):
        raise ConfigError(f"config: '{settings.dotted('matmul')}' must be auto, highest or medium, got {matmul!r}.")
    if matmul == "auto":
        matmul = "medium" if onednn_is_exact(_cpu_flags()) else "highest"
    # A saturated sigmoid makes gradients below 1e-38, on which the CPU is 100 times slower; worker threads that
    # start later inherit this.
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(matmul)
    return Compute(threads, matmul, pack_tokens)


def onednn_is_exact(flags: frozenset[str]) -> bool:
    """Whether oneDNN's float32 product is known to stay float32 on a CPU with these flags."""
    return "avx512f" in flags and not any(flag.startswith("amx") for flag in flags)


def _cpu_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()
