"""A fall-back where NVML cannot say how much memory is free: GB10's GPU has none of its own, and NVML no answer."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType


def install(nvml: ModuleType) -> None:
    """Wrap `get_free_memory_bytes` of the module `nemo_rl.utils.nvml`, which sizes the buffer of each weight refit.

    On unified memory the answer is then `MemAvailable` of /proc/meminfo, in bytes. CUDA's own count leaves out what
    the kernel would free for it (page cache), as NVIDIA's known issues of the DGX Spark say ("Memory Reporting
    Differences with Unified Memory Architecture"). A GPU with memory of its own raises as before: the machine's
    memory says nothing about it.
    """
    original = nvml.get_free_memory_bytes
    said = False

    def get_free_memory_bytes(device_idx: int) -> float:
        nonlocal said
        try:
            answer: float = original(device_idx)
            return answer
        except RuntimeError as error:
            if _has_own_memory(device_idx):
                raise
            free = available_bytes()
            if not said:
                said = True
                print(
                    f"[nvtrader] NVML cannot report the free memory of device {device_idx} ({error}); taking "
                    f"MemAvailable of the unified memory, now {free / 2**30:.1f} GiB",
                    flush=True,
                )
            return free

    nvml.get_free_memory_bytes = get_free_memory_bytes  # type: ignore[attr-defined]


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> float:
    """`MemAvailable`, see proc(5). Raises `RuntimeError` when the file does not say."""
    for line in meminfo.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return float(value.split()[0]) * 1024
    raise RuntimeError(f"{meminfo} has no MemAvailable")


def _has_own_memory(device_idx: int) -> bool:
    """Whether the device is a GPU that does not share the machine's memory."""
    import torch

    if not torch.cuda.is_available():
        return False
    return not torch.cuda.get_device_properties(device_idx).is_integrated
