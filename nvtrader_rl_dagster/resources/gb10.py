"""`GB10Resource`: the one device, and the trainer that runs on it.

An asset reads `yield from gb10.train("dpo", config, context=context).stream()`.
"""

from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg
import orjson
import yaml
from pydantic import Field

from nvtrader_rl_dagster.files import read_json
from nvtrader_rl_dagster.nemo_rl.backends import (
    Backend,
    BackendError,
    Trainer,
    choose_trainer,
    embedded_environment,
    embedded_trainer,
)
from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, DpoOptions, Target, resolve_base_model
from nvtrader_rl_dagster.nemo_rl.launch_files import Exit, Limits, Reason, StallPolicy
from nvtrader_rl_dagster.nemo_rl.preflight.before_launch import PreflightError, before_launch
from nvtrader_rl_dagster.nemo_rl.resume import is_resumable, prepare_resume, run_of
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState
from nvtrader_rl_dagster.nemo_rl.supervised import SupervisedProcess
from nvtrader_rl_dagster.nemo_rl.training import TrainingRun, write_config
from nvtrader_rl_dagster.nemo_rl.versions import version_of
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.training_step import TrainingStep


class OnCrash(str, Enum):
    """What happens to a training whose supervisor, trainer or step was killed."""

    RESUME = "resume"
    FAIL = "fail"


class GB10Resource(dg.ConfigurableResource):
    """The training device. Without a GPU the embedded trainer runs the same YAML on the CPU."""

    artifacts: dg.ResourceDependency[ArtifactStore]
    backend: Backend = Field(
        default=Backend.AUTO,
        description="'nemo_rl' launches NeMo-RL, 'local' the embedded trainer; 'auto' takes NeMo-RL when it and a "
        "GPU are there, and says why.",
    )
    nemo_rl_python: str = Field(
        default="",
        description="Interpreter of the NeMo-RL environment; empty means NVTRADER_NEMORL_PYTHON, else .venv of the "
        "source tree.",
    )
    nemo_rl_source: str = Field(
        default="",
        description="NeMo-RL's source tree; empty means NVTRADER_NEMORL_SRC, else third_party/nemo-rl.",
    )
    pass_environment: list[str] = Field(
        default=[],
        description="Environment variables that a training gets besides the bridge's allow-list, for example HF_TOKEN "
        "or WANDB_API_KEY; NVTRADER_NEMORL_PASS_ENV names more.",
    )
    gpus_per_node: int = Field(default=1, ge=1, description="GPUs that NeMo-RL asks Ray for.")
    threads: int = Field(default=0, ge=0, description="CPU threads of the embedded trainer; 0 means one per core.")
    grace_seconds: float = Field(
        default=20.0,
        gt=0,
        description="Seconds between a polite stop and a forced one, for a checkpoint to be finished.",
    )
    run_limit_minutes: float = Field(
        default=0.0, ge=0, description="Longest training; 0 is no limit. It saves a checkpoint before it is stopped."
    )
    stall_minutes: float = Field(
        default=60.0, ge=0, description="Minutes without a new step after which a training is stalled; 0 never is."
    )
    stall_policy: StallPolicy = Field(
        default=StallPolicy.KILL, description="'kill' ends a stalled training, 'warn' only marks it."
    )
    lease_wait_minutes: float = Field(
        default=60.0, ge=0, description="Minutes to wait for the GPU when another process holds it."
    )
    on_crash: OnCrash = Field(
        default=OnCrash.RESUME,
        description="'resume' goes on from the newest complete checkpoint after a crash, 'fail' ends the run.",
    )
    max_attempts: int = Field(default=3, ge=1, description="Attempts of one training over all crashes.")
    observe_every_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Seconds between the observations of a young training; an old one is observed less often.",
    )

    def train(self, algo: str, config: DpoOptions, context: dg.AssetExecutionContext) -> TrainingStep:
        """Prepare a run on the newest data set: its folder, its YAML, its record.

        A Dagster retry after a crash gets the folder of the run it repeats. Raises `dg.Failure` for data or a
        backend that it cannot train with.
        """
        trainer = self._trainer(algo)
        directory = self._crashed_run(algo, config, context)
        if directory is None:
            directory = self._new_run(algo, config, trainer, context)
        attempts = self.max_attempts if self.on_crash is OnCrash.RESUME else 1
        lease = self.artifacts.home.lease
        run = TrainingRun(directory, trainer, lease, self._limits(), self.threads, attempts)
        return TrainingStep(run, context, self.observe_every_seconds)

    def score(self, models: dict[str, str], data_file: Path, out: Path, max_tokens: int) -> dict[str, Any]:
        """Log-probabilities of every pair of `data_file` under each model, written to `out/<name>.jsonl`.

        Returns the scorer's summary: for each model the pairs, seconds and off-topic loss.
        """
        out.mkdir(parents=True, exist_ok=True)
        config = out / "score.yaml"
        settings = {
            "models": models,
            "data_path": str(data_file),
            "output_dir": str(out),
            "max_total_sequence_length": max_tokens,
        }
        config.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        ended = self._run_embedded(["score", "--config", str(config)], out)
        if ended.reason is not Reason.EXITED or ended.exit_code != 0:
            raise dg.Failure(f"scoring {_end_of(ended)}: {' | '.join(ended.tail[-3:])}", allow_retries=False)
        summary: dict[str, Any] = read_json(out / "summary.json")
        return summary

    def try_model(self, path: str, out: Path) -> tuple[bool, str]:
        """Load a model folder in a process of its own and let it predict: whether it works, and what it said."""
        ended = self._run_embedded(["check", path], out)
        said = [line for line in ended.tail if line.strip()]
        return ended.exit_code == 0, said[-1] if said else _end_of(ended)

    def _trainer(self, algo: str) -> Trainer:
        try:
            return choose_trainer(self.backend, algo, self.nemo_rl_python, self.nemo_rl_source, self.pass_environment)
        except BackendError as error:
            raise dg.Failure(str(error), allow_retries=False) from error

    def _crashed_run(self, algo: str, config: DpoOptions, context: dg.AssetExecutionContext) -> RunDirectory | None:
        """The folder of the training that this Dagster run repeats after a crash, ready to go on."""
        parent = context.run.parent_run_id
        if parent is None or self.on_crash is OnCrash.FAIL:
            return None
        directory = run_of(self.artifacts.runs, algo, parent, patience_seconds=self.grace_seconds + 30)
        if directory is None:
            return None
        record = directory.record()
        if record.options != config.model_dump(mode="json") or not directory.config.exists():
            return None  # other settings are another training; without a configuration there was none
        if record.state is RunState.SUCCEEDED:
            context.log.info("training run %s was finished before the crash", record.run_id)
            return directory
        if not is_resumable(directory, record, asked=True) or record.attempt >= self.max_attempts:
            return None
        prepare_resume(directory, context.run.run_id)
        context.log.info("going on with training run %s, attempt %s", record.run_id, record.attempt + 1)
        return directory

    def _new_run(
        self, algo: str, config: DpoOptions, trainer: Trainer, context: dg.AssetExecutionContext
    ) -> RunDirectory:
        data = self.artifacts.preference_data()
        base_model = self._base_model(config, trainer)
        directory = self.artifacts.runs.create(
            algo,
            trainer.name,
            data_hash=data.data_version,
            ledger_id=data.ledger_id,
            trained_through_seq=data.through_seq,
            validation_fraction=data.validation_fraction,
            dagster_run_id=context.run.run_id,
            options=config.model_dump(mode="json"),
        )
        options = config.model_copy(update={"base_model": base_model})
        try:
            target = self._target(trainer)
            built = BUILDERS[algo](options, data, directory.checkpoints, directory.path / "logs", target)
        except ValueError as error:
            directory.fail(str(error).partition(":")[0], str(error))
            raise dg.Failure(str(error), allow_retries=False) from error
        if self.run_limit_minutes:
            seconds = max(1, int(self.run_limit_minutes * 60 - self.grace_seconds))
            built.config["checkpointing"]["checkpoint_must_save_by"] = _days(seconds)
        for note in built.notes:
            context.log.info(note)
        write_config(directory, built.config)
        directory.update(config_hash=built.config_hash, notes=[trainer.why, *built.notes])
        try:
            report = before_launch(directory, trainer, built.config, cache=self.artifacts.home.lengths)
        except PreflightError as error:
            raise dg.Failure(error.report.text(), allow_retries=False) from error
        for finding in report.warnings:
            context.log.warning("%s: %s; %s", finding.code, finding.message, finding.remedy)
        return directory

    def _target(self, trainer: Trainer) -> Target:
        if trainer.source is None:
            return Target.embedded()
        return Target(version_of(trainer.source), self.gpus_per_node)

    def _base_model(self, config: DpoOptions, trainer: Trainer) -> str:
        """The model to start from; NeMo-RL takes folders only."""
        name = resolve_base_model(config.base_model)
        if trainer.source is None or not name.startswith("builtin:"):
            return name
        ended = self._run_embedded(["model", name], self.artifacts.home.root / "nemo_rl" / "base_model")
        if ended.exit_code != 0:
            raise dg.Failure(f"{name} could not be made: {' | '.join(ended.tail[-3:])}", allow_retries=False)
        folder: str = orjson.loads(ended.tail[-1])["path"]
        return folder

    def _run_embedded(self, arguments: list[str], out: Path) -> Exit:
        """Run the embedded trainer under a supervisor, with its files in `out`; again when it was killed."""
        out.mkdir(parents=True, exist_ok=True)
        directory = RunDirectory(out)
        environment = embedded_environment(self.threads, self.pass_environment)
        lease, limits = self.artifacts.home.lease, self._limits()
        for attempt in range(1, self.max_attempts + 1):
            # Done again: the log is that of the newest time, numbered from one.
            directory.log.unlink(missing_ok=True)
            directory.metrics.unlink(missing_ok=True)
            process = SupervisedProcess(
                directory, embedded_trainer(arguments), environment, lease, limits, attempt=attempt
            )
            try:
                for _ in process.metrics():
                    pass
                ended = process.wait()
            except BaseException:
                process.stop()
                raise
            if not ended.killed or self.on_crash is OnCrash.FAIL:
                break
        return ended

    def _limits(self) -> Limits:
        return Limits(
            grace=self.grace_seconds,
            run=self.run_limit_minutes * 60 or None,
            stall=self.stall_minutes * 60 or None,
            stall_policy=self.stall_policy,
            lease_wait=self.lease_wait_minutes * 60,
        )


def _end_of(ended: Exit) -> str:
    if ended.reason is Reason.EXITED:
        return f"ended with exit code {ended.exit_code}"
    return f"was stopped ({ended.reason.value}): {ended.detail}"


def _days(seconds: int) -> str:
    """NeMo-RL's time format, DD:HH:MM:SS."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day:02}:{hour:02}:{minute:02}:{second:02}"
