"""The GPU as `nvidia-smi` sees it."""

from __future__ import annotations

from collections.abc import Iterator

from nvtrader_rl_dagster.doctor.finding import Finding, gigabytes, ok, warning
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.gpus import Gpu as Gpu
from nvtrader_rl_dagster.nemo_rl.gpus import GpuError as GpuError
from nvtrader_rl_dagster.nemo_rl.gpus import gpus as gpus


def check_gpu(home: Home) -> Iterator[Finding]:
    """Name, capability, driver and memory of each GPU."""
    try:
        found = gpus()
    except GpuError as problem:
        yield warning("GPU", f"nvidia-smi: {problem}", "install or restart the NVIDIA driver; then run nvidia-smi")
        return
    if not found:
        yield ok("GPU", "no NVIDIA GPU is seen; the embedded trainer uses the CPU")
    for gpu in found:
        if gpu.memory is None:
            memory = "memory shared with the CPU (nvidia-smi does not report it)"
        else:
            memory = f"{gigabytes(gpu.memory)}, {gigabytes(gpu.used or 0)} of it in use"
        capability = f", capability {gpu.capability}" if gpu.capability else ""
        yield ok("GPU", f"{gpu.name}: {memory}{capability}, driver {gpu.driver}")
