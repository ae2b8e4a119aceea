"""Ray clusters that are not ours: NeMo-RL would attach to one, and its workers would outlive the training."""

from __future__ import annotations

import os
from collections.abc import Iterator

from nvtrader_rl_dagster.doctor.finding import Finding, ok, warning
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.processes import LEASE_VARIABLE, environment_of

_DAEMONS = {"gcs_server", "raylet"}


def check_ray_clusters(home: Home) -> Iterator[Finding]:
    """Daemons of Ray that do not belong to a launch below our lease."""
    import psutil

    found = [
        process
        for process in psutil.process_iter(["pid", "name", "username"])
        if process.info["name"] in _DAEMONS
        and environment_of(process.pid).get(LEASE_VARIABLE.encode()) != os.fsencode(home.lease)
    ]
    for process in found:
        info = process.info
        yield warning(
            "Ray clusters",
            f"{info['name']} (pid {info['pid']}, {info['username']}) is not ours; NeMo-RL would attach to its cluster",
            "let its owner stop it (`ray stop` ends every Ray on the machine), or give it other CUDA_VISIBLE_DEVICES",
        )
    if not found:
        yield ok("Ray clusters", "none but ours")
