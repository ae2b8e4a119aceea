"""Where a configuration is to run."""

from __future__ import annotations

from dataclasses import dataclass

from nvtrader_rl_dagster.nemo_rl.versions import DEFAULT_VERSION


@dataclass(frozen=True)
class Target:
    """NeMo-RL's version, its GPUs, and the precision that it computes in (`bfloat16` or `float32`)."""

    version: str = DEFAULT_VERSION
    gpus_per_node: int = 1
    num_nodes: int = 1
    precision: str = "bfloat16"

    @classmethod
    def embedded(cls) -> Target:
        """The embedded trainer: one device, no reduced precision."""
        return cls(precision="float32")

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.num_nodes
