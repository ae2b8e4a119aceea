"""Where results are: typed access to the state folder for assets, with errors that name the remedy."""

from pathlib import Path

import dagster as dg
from pydantic import Field

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.datasets.convert import TRAIN, VALIDATION
from nvtrader_rl_dagster.evaluation.champion import ChampionStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, complete_checkpoints, newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.configs import PreferenceData
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunStore


class ArtifactStore(dg.ConfigurableResource):
    """The state folder. Results are files in it; materializations only point at them."""

    root: str = Field(default="", description="State folder; empty means NVTRADER_RL_HOME, else ./data.")

    @property
    def home(self) -> Home:
        return Home.from_env(self.root or None)

    @property
    def runs(self) -> RunStore:
        return RunStore(self.home.runs)

    @property
    def champions(self) -> ChampionStore:
        return ChampionStore(self.home.champion)

    def pairs(self) -> files.Version:
        """The newest preference pairs. Raises `dg.Failure` when there are none yet."""
        return _existing(self.home.pairs, "preference_pairs")

    def preference_data(self) -> PreferenceData:
        """The newest NeMo rank data set, as a training takes it."""
        version = _existing(self.home.dataset("nemo_rl"), "nemo_rl_dataset")
        return PreferenceData(
            train=version.path / TRAIN,
            validation=version.path / VALIDATION,
            train_rows=version.manifest["train"],
            validation_rows=version.manifest["validation"],
            data_version=version.data_version,
            # A data set that was written before stores had an id belongs to no known one.
            ledger_id=version.manifest.get("ledger_id", ""),
            through_seq=version.manifest["through_seq"],
            validation_fraction=version.manifest["validation_fraction"],
        )

    def trained(self, algo: str) -> tuple[RunDirectory, Checkpoint]:
        """The newest successful run of an algorithm and its newest checkpoint."""
        run = self.runs.newest(algo)
        checkpoint = newest_checkpoint(run.checkpoints) if run else None
        if run is None or checkpoint is None:
            raise dg.Failure(
                f"There is no trained {algo} checkpoint yet; materialize {algo}_checkpoint first.",
                allow_retries=False,
            )
        return run, checkpoint

    def checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint by its id, `<run id>/step_<n>`. Raises `KeyError` when it is gone."""
        run_id, _, step = checkpoint_id.partition("/")
        for checkpoint in complete_checkpoints(self.runs.get(run_id).checkpoints):
            if checkpoint.path.name == step:
                return checkpoint
        raise KeyError(f"training run {run_id} has no complete {step}")

    def evaluation(self, checkpoint_id: str) -> Path:
        """Folder of one checkpoint's scores."""
        return self.home.evals / checkpoint_id.replace("/", "-")


def _existing(root: Path, asset: str) -> files.Version:
    version = files.current(root)
    if version is None:
        raise dg.Failure(f"{root} holds nothing yet; materialize {asset} first.", allow_retries=False)
    return version
