"""The GPUs as `nvidia-smi` sees them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

_FIELDS = "name,compute_cap,driver_version,memory.total,memory.used"
_TIMEOUT_SECONDS = 20


class GpuError(Exception):
    """`nvidia-smi` is there and does not work."""


@dataclass(frozen=True)
class Gpu:
    """capability: such as `12.1`; None when the driver is too old to say. driver: its version.

    memory: bytes in total; None where GPU and CPU share it, as on a GB10. used: bytes, None likewise.
    """

    name: str
    capability: str | None
    driver: str
    memory: int | None
    used: int | None


def gpus() -> list[Gpu]:
    """What `nvidia-smi` lists; empty where there is none. Raises `GpuError` with what it said."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as expired:
        raise GpuError(f"it did not answer within {_TIMEOUT_SECONDS} s") from expired
    except OSError as error:
        raise GpuError(str(error)) from error
    said = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode != 0:
        raise GpuError(said[0] if said else f"exit code {done.returncode}")
    rows = [[field.strip() for field in line.rsplit(",", 4)] for line in done.stdout.splitlines() if line.strip()]
    if any(len(row) != 5 for row in rows):
        raise GpuError(f"its answer is not understood: {said[0]}")
    return [
        Gpu(name, capability if capability.replace(".", "").isdecimal() else None, driver, _bytes(total), _bytes(used))
        for name, capability, driver, total, used in rows
    ]


def _bytes(mebibytes: str) -> int | None:
    """`[N/A]` and `[Not Supported]` are None."""
    return int(mebibytes) * 2**20 if mebibytes.isdecimal() else None
