"""Ray clusters that are not ours: NeMo-RL would join one, so a training is refused beside it."""

from __future__ import annotations

from collections.abc import Iterator

from nvtrader_rl_dagster.doctor.finding import Finding, ok, warning
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.ray_heads import foreign_ray


def check_ray_clusters(home: Home) -> Iterator[Finding]:
    """Daemons of Ray that do not belong to a launch below our lease."""
    found = foreign_ray(home.lease)
    for pid, name in found.items():
        yield warning(
            "Ray clusters",
            f"{name} (pid {pid}) is not ours; no NeMo-RL training starts beside it",
            "let its owner stop it (`ray stop` ends every Ray on the machine)",
        )
    if not found:
        yield ok("Ray clusters", "none but ours")
