"""Exports a checkpoint to a Hugging Face folder, in the trainer's interpreter and without the GPU."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nvtrader_rl_dagster.files import read_json, write_json
from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.checkpoints import (
    CONSOLIDATED,
    EXPORT_REPORT,
    EXPORTED,
    Checkpoint,
    best_checkpoint,
    complete_checkpoints,
)
from nvtrader_rl_dagster.nemo_rl.export.formats import WeightFormat
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits, Reason
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, timestamp
from nvtrader_rl_dagster.nemo_rl.supervised import SupervisedProcess

_ASSEMBLE = Path(__file__).parent / "trainer_side" / "assemble.py"
_STAGING = ".hf-"
#: The converter's result and ours are there at the same time.
_COPIES = 2
_MEGATRON_WORKER = "nemo_rl.models.policy.workers.megatron_policy_worker.MegatronPolicyWorker"


class ExportError(Exception):
    """`export`: the checkpoint did not become a Hugging Face folder. It is as it was."""


class Exporter:
    """Exports the checkpoints of one run.

    trainer: whoever made them. lease: the GPU's; only Megatron's converters use the GPU, everything else leaves it to
    its holder. limits: `grace` and `lease_wait` count.
    """

    def __init__(self, run: RunDirectory, trainer: Trainer, lease: Path, limits: Limits, threads: int = 0) -> None:
        self._run = run
        self._trainer = trainer
        self._lease = lease
        self._limits = Limits(grace=limits.grace, lease_wait=limits.lease_wait)
        self._threads = threads

    def newest_and_best(self) -> list[Path]:
        """The Hugging Face folders of the newest checkpoint and, unless it is the same, the best one.

        Raises `ExportError`.
        """
        checkpoints = complete_checkpoints(self._run.checkpoints)
        wanted = {c.step: c for c in (*checkpoints[-1:], best_checkpoint(checkpoints)) if c is not None}
        return [self.export(checkpoint) for checkpoint in wanted.values()]

    def export(self, checkpoint: Checkpoint, out: Path | None = None) -> Path:
        """The checkpoint's Hugging Face folder: made, verified, then put in its place, and into the manifest.

        out: another place for it, which must not exist; the checkpoint is then left as it is. One that has its
        Hugging Face folder already is not exported again. Raises `ExportError`.
        """
        loadable = _loadable(checkpoint)
        if out is None and loadable is not None and _is_noted(checkpoint):
            return loadable
        with _alone(self._run.path / "export" / "lock"):
            loadable = _loadable(checkpoint)
            if out is None:
                # A save or an export that was killed; nobody else works here now.
                for leftover in checkpoint.path.glob(f"{_STAGING}*"):
                    shutil.rmtree(leftover)
                if loadable is None:
                    self._make(checkpoint, checkpoint.path / EXPORTED)
                _note(checkpoint)
                return checkpoint.huggingface
            if out.exists():
                raise ExportError(f"{out} exists already; choose a new folder")
            out.parent.mkdir(parents=True, exist_ok=True)
            self._make(checkpoint, out, loadable)
            return out

    def _make(self, checkpoint: Checkpoint, out: Path, loadable: Path | None = None) -> None:
        kind = WeightFormat.HUGGINGFACE if loadable else checkpoint.format
        if kind is WeightFormat.CONSOLIDATED:
            loadable = checkpoint.path / CONSOLIDATED
        if kind is WeightFormat.UNKNOWN:
            raise ExportError(f"{checkpoint.path / 'policy/weights'} is in none of the formats that NeMo-RL writes")
        _refuse_full_disk(loadable or checkpoint.path / "policy/weights", out.parent)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=out.parent))
        try:
            arguments = [kind.value, str(checkpoint.path), str(staging), *([str(loadable)] if loadable else [])]
            self._assemble(checkpoint, kind, arguments)
            made = staging / "out"
            report = {"exported": timestamp(), "from": kind.value, **read_json(staging / "report.json")}
            write_json(made / EXPORT_REPORT, report)
            _settle(made)
            made.rename(out)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _assemble(self, checkpoint: Checkpoint, kind: WeightFormat, arguments: list[str]) -> None:
        """Run the part that needs the trainer's packages, supervised: it ends when we do, and can be cancelled."""
        directory = RunDirectory(self._run.path / "export" / checkpoint.path.name)
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.log.unlink(missing_ok=True)
        environment = self._trainer.environment(self._threads)
        python, lease = self._trainer.python, self._run.path / "export" / "lease"
        if kind.is_megatron:
            python, lease = _megatron_python(environment, self._trainer), self._lease
        else:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        process = SupervisedProcess(
            directory,
            [python, "-u", str(_ASSEMBLE), *arguments],
            environment,
            lease,
            self._limits,
            cwd=self._trainer.cwd,
        )
        try:
            for _ in process.metrics():
                pass
            ended = process.wait()
        except BaseException:
            process.stop()
            raise
        if ended.reason is not Reason.EXITED or ended.exit_code != 0:
            said = next((line.strip() for line in reversed(ended.tail) if line.strip()), "no output")
            why = ended.detail or f"{said.removeprefix('export: ')} (exit code {ended.exit_code})"
            raise ExportError(f"{checkpoint.path} could not be exported: {why}; the whole log: {directory.log}")


def _loadable(checkpoint: Checkpoint) -> Path | None:
    try:
        return checkpoint.huggingface
    except FileNotFoundError:
        return None


def _refuse_full_disk(weights: Path, place: Path) -> None:
    needed = _COPIES * sum(file.stat().st_size for file in weights.rglob("*") if file.is_file())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise ExportError(
            f"an export needs about {needed / 1e9:.1f} GB at {place}, where {free / 1e9:.1f} GB are free; "
            "free space (nvtrader-rl prune), or export with --out to another disk"
        )


def _is_noted(checkpoint: Checkpoint) -> bool:
    """Whether the manifest says of the export what is there. A run that goes on has no manifest yet."""
    if not (checkpoint.path / "manifest.json").exists():
        return True
    manifest = checkpoint.manifest
    return "export" in manifest and manifest["export"] == checkpoint.export_report


def _note(checkpoint: Checkpoint) -> None:
    """The exported weights are the model's identity from now on."""
    if not _is_noted(checkpoint):
        checkpoint.write_manifest({**checkpoint.manifest, **checkpoint.describe()})


def _megatron_python(environment: dict[str, str], trainer: Trainer) -> str:
    """Megatron's packages are in the environment of its worker, which NeMo-RL builds at the first training."""
    environments = Path(environment.get("NEMO_RL_VENV_DIR") or Path(trainer.source or ".") / "venvs")
    python = environments / _MEGATRON_WORKER / "bin" / "python"
    return str(python) if python.exists() else trainer.python


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One export of a run at a time; the lock goes with its holder."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _settle(folder: Path) -> None:
    """Readable by the web UI's user, and on disk before the rename: a power failure leaves no empty weights behind."""
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
