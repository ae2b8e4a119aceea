"""The GPU as `nvidia-smi` sees it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from nvtrader_rl_dagster.doctor.finding import Finding, gigabytes, ok, warning
from nvtrader_rl_dagster.home import Home

_QUERY = "--query-gpu=name,memory.total,memory.used"
_TIMEOUT_SECONDS = 20


class GpuError(Exception):
    """`nvidia-smi` is there and does not work."""


@dataclass(frozen=True)
class Gpu:
    """memory: bytes in total; None where GPU and CPU share it, as on a GB10. used: bytes, None likewise."""

    name: str
    memory: int | None
    used: int | None


def gpus() -> list[Gpu]:
    """What `nvidia-smi` lists; empty where there is none. Raises `GpuError` with what it said."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, _QUERY, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as expired:
        raise GpuError(f"it did not answer within {_TIMEOUT_SECONDS} s") from expired
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise GpuError(said[0] if said else f"exit code {done.returncode}")
    rows = [[field.strip() for field in line.rsplit(",", 2)] for line in done.stdout.splitlines() if line.strip()]
    return [Gpu(name, _mebibytes(total), _mebibytes(used)) for name, total, used in rows]


def check_gpu(home: Home) -> Iterator[Finding]:
    """Name and memory of each GPU."""
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
        yield ok("GPU", f"{gpu.name}: {memory}")


def _mebibytes(field: str) -> int | None:
    """`[N/A]` and `[Not Supported]` are None."""
    return int(field) * 2**20 if field.isdecimal() else None
