"""What a preflight looks at: an algorithm, its configuration, the trainer, and the checkpoint folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.algorithms import Algorithm, DataShape, Release
from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.env_probe import Interpreter
from nvtrader_rl_dagster.nemo_rl.preflight.settings import Settings


class Start(str, Enum):
    """How a run treats checkpoints that are in its folder; NeMo-RL always goes on from the newest.

    auto: the folder is new, or holds the same training. new: it must hold none. resume: it must hold some of the
    same model and data. fork: another model or other data go on from them.
    """

    AUTO = "auto"
    NEW = "new"
    RESUME = "resume"
    FORK = "fork"


@dataclass(frozen=True)
class Case:
    """version: the release that the tree follows. interpreter: None for the embedded trainer, and where unknown."""

    algorithm: Algorithm
    settings: Settings
    trainer: Trainer
    version: str
    environment: Mapping[str, str]
    interpreter: Interpreter | None = None
    checkpoints: Path | None = None
    start: Start = Start.AUTO

    @property
    def embedded(self) -> bool:
        return self.trainer.source is None

    @property
    def trains(self) -> bool:
        return self.algorithm.data is not DataShape.BENCHMARK

    @property
    def preference(self) -> bool:
        return self.algorithm.data is DataShape.PREFERENCE

    @property
    def rl(self) -> bool:
        """Whether it generates: the GRPO family, PPO and distillation."""
        return self.algorithm.data is DataShape.PROMPTS

    @property
    def release(self) -> Release:
        return self.algorithm.release(self.version)

    @property
    def section(self) -> str:
        """Name of the algorithm's own section."""
        return self.release.section

    @property
    def worker(self) -> str:
        """`dtensor`, `dtensor_v2` or `megatron`; empty when the configuration names none or both."""
        dtensor, megatron = (bool(self.settings.get(f"policy.{name}_cfg.enabled")) for name in ("dtensor", "megatron"))
        if dtensor == megatron:
            return ""
        if megatron:
            return "megatron"
        return "dtensor_v2" if self.settings.get("policy.dtensor_cfg._v2") else "dtensor"

    def path(self, name: str) -> Path:
        """A path of the configuration: NeMo-RL looks from its working directory."""
        return (self.trainer.cwd or Path.cwd()) / Path(name).expanduser()
