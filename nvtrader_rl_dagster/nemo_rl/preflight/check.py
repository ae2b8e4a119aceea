"""`preflight`: one report on what would make a training fail, before the GPU is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.env_probe import Interpreter, look_into_interpreter
from nvtrader_rl_dagster.nemo_rl.preflight import capacity, lengths
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case, Start
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import DataBlock, data_blocks
from nvtrader_rl_dagster.nemo_rl.preflight.data_rows import LoaderRules, Scan, findings_of, scan
from nvtrader_rl_dagster.nemo_rl.preflight.folder import check_folder
from nvtrader_rl_dagster.nemo_rl.preflight.logger_checks import check_loggers
from nvtrader_rl_dagster.nemo_rl.preflight.metric import check_metric
from nvtrader_rl_dagster.nemo_rl.preflight.model import check_models
from nvtrader_rl_dagster.nemo_rl.preflight.prompt_files import check_prompt_files
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, Prediction, Report, SetRows, ok, refuse, warn
from nvtrader_rl_dagster.nemo_rl.preflight.required import check_required
from nvtrader_rl_dagster.nemo_rl.preflight.rollout_checks import check_processors, check_rollouts
from nvtrader_rl_dagster.nemo_rl.preflight.settings import merged, resolved
from nvtrader_rl_dagster.nemo_rl.preflight.steps import StepPlan, plan_steps
from nvtrader_rl_dagster.nemo_rl.preflight.tree import check_tree, is_checkout
from nvtrader_rl_dagster.nemo_rl.preflight.validation import check_overlap, check_validation
from nvtrader_rl_dagster.nemo_rl.preflight.worker_rules import check_worker
from nvtrader_rl_dagster.nemo_rl.versions import DEFAULT_VERSION, version_of


def preflight(
    algo: str,
    config: Mapping[str, Any],
    trainer: Trainer,
    *,
    checkpoints: Path | None = None,
    start: Start = Start.AUTO,
    cache: Path | None = None,
) -> Report:
    """What a training would run into, from its complete configuration.

    checkpoints: where it saves, by default `checkpointing.checkpoint_dir`. cache: a folder for counted lengths.
    Reads every row of local data sets once; starts the trainer's interpreter, never the trainer. A check that
    breaks becomes a warning.
    """
    try:
        version = _version(trainer)
    except ValueError as error:
        return Report(algo, trainer.name, "", (refuse("version", str(error), "check out a supported release"),))
    try:
        settings, resolvers = resolved(merged(config, trainer.cwd or Path()))
    except ValueError as error:
        return Report(algo, trainer.name, version, (refuse("configuration", str(error), "correct it"),))
    algorithm = ALGOS[algo]
    folder = settings.get("checkpointing.checkpoint_dir")
    case = Case(
        algorithm,
        settings,
        trainer,
        version,
        trainer.environment(0),
        checkpoints=checkpoints or (Path(trainer.cwd or Path.cwd()) / str(folder) if folder else None),
        start=start,
    )
    examination = _Examination(case, resolvers, cache)
    return examination.report()


class _Examination:
    """All checks of one case, in the order of the report."""

    def __init__(self, case: Case, resolvers: list[str], cache: Path | None) -> None:
        self.findings: list[Finding] = []
        self._resolvers = resolvers
        self._cache = cache
        self.case = case
        self.blocks: list[DataBlock] = []
        self.scans: list[Scan] = []
        self.data: list[SetRows] = []
        self.plan = StepPlan()
        self.memory: Prediction | None = None
        self.disk: Prediction | None = None

    def report(self) -> Report:
        self._guarded("interpreter", self._interpreter)
        case = self.case
        self._guarded("tree", lambda: check_tree(case))
        self._guarded("keys", lambda: check_required(case))
        self._guarded("resolvers", self._check_resolvers)
        self._guarded("worker", lambda: check_worker(case))
        self._guarded("rollouts", lambda: check_rollouts(case))
        self._guarded("models", lambda: check_models(case))
        self._guarded("data", self._data)
        self._guarded("processors", lambda: check_processors(case, self.blocks))
        self._guarded("prompt files", lambda: check_prompt_files(case, self.blocks))
        self._guarded("steps", self._steps)
        self._guarded("validation", lambda: check_validation(case, self.blocks))
        self._guarded("overlap", lambda: check_overlap(self.scans))
        self._guarded("metric", lambda: check_metric(case, self.blocks))
        self._guarded("folder", lambda: check_folder(case))
        self._guarded("memory", self._memory)
        self._guarded("disk", self._disk)
        return Report(
            case.algorithm.name,
            case.trainer.name,
            "" if case.embedded else case.version,
            tuple(self.findings),
            self.plan.steps,
            self.plan.per_epoch,
            tuple(self.data),
            self.memory,
            self.disk,
        )

    def _guarded(self, name: str, check: Callable[[], Iterator[Finding]]) -> None:
        try:
            self.findings.extend(check())
        except Exception as problem:
            message = f"{name} could not be checked: {type(problem).__name__}: {problem}"
            self.findings.append(warn("unchecked", message, "correct what the message says"))

    def _interpreter(self) -> Iterator[Finding]:
        trainer = self.case.trainer
        if trainer.source is None or not is_checkout(trainer.source):
            return
        found: Interpreter | None = None
        try:
            found = look_into_interpreter(trainer.python, self.case.environment)
        except ValueError as error:
            yield refuse("interpreter", str(error), "set NVTRADER_NEMORL_PYTHON to the Python of NeMo-RL's environment")
        self.case = replace(self.case, interpreter=found)

    def _check_resolvers(self) -> Iterator[Finding]:
        if self._resolvers and not self.case.embedded and not self.case.release.resolvers:
            names = ", ".join(f"${{{name}:…}}" for name in self._resolvers)
            message = f"{self.case.release.script} does not know {names}"
            yield refuse("resolvers", message, "write the values themselves")

    def _data(self) -> Iterator[Finding]:
        case = self.case
        self.blocks, problems = data_blocks(case)
        yield from problems
        rules, limit = LoaderRules.of(case), lengths.token_limit(case)
        for block in self.blocks:
            if block.file is not None:
                self.scans.append(scan(block, case, rules, limit))
                yield from findings_of(self.scans[-1], rules)
        measured: list[lengths.Lengths | None] = [None] * len(self.scans)
        if limit is not None:
            counted, problems = lengths.measure(case, self.scans, limit, self._cache)
            measured = list(counted)
            yield from problems
            for found, length in zip(self.scans, counted, strict=True):
                yield from lengths.findings_of(case, found, length, limit)
        of_block = {id(s.block): lengths.rows_of(s, m) for s, m in zip(self.scans, measured, strict=True)}
        self.data = [of_block.get(id(block), SetRows(block.name, block.source, None)) for block in self.blocks]
        for rows in self.data:
            if rows.rows and not rows.bad:
                yield ok("data", f"{rows.name}: {rows.rows:,} rows can be used")

    def _steps(self) -> Iterator[Finding]:
        counted = all(block.file is not None for block in self.blocks if block.role == "train")
        self.plan = plan_steps(self.case, self.scans, counted and any(b.role == "train" for b in self.blocks))
        yield from self.plan.findings

    def _memory(self) -> Iterator[Finding]:
        device = capacity.device(self.case)
        yield from check_loggers(self.case, device.integrated_gpu)
        self.memory = capacity.predict_memory(self.case, device)
        yield from capacity.check_memory(self.case, device, self.memory)

    def _disk(self) -> Iterator[Finding]:
        self.disk = capacity.predict_disk(self.case, self.plan.steps)
        yield from capacity.check_disk(self.case, self.disk)


def _version(trainer: Trainer) -> str:
    """Raises `ValueError` for a release that is not supported."""
    tree = trainer.source
    if tree is None or not (tree / "nemo_rl" / "package_info.py").is_file():
        return DEFAULT_VERSION
    return version_of(tree)
