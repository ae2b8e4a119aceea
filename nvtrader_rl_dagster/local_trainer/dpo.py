"""Direct Preference Optimization: NeMo-RL 0.6.0's run_dpo on the CPU."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from nvtrader_rl_dagster.local_trainer.batches import BatchOrder
from nvtrader_rl_dagster.local_trainer.chat_tokens import load_tokenizer
from nvtrader_rl_dagster.local_trainer.checkpoints import (
    DATALOADER,
    OPTIMIZER,
    WEIGHTS,
    CheckpointStore,
    check_metric_name,
    read_info,
    read_torch,
    tracked_metric,
    write_model,
    write_torch,
)
from nvtrader_rl_dagster.local_trainer.compute import set_up_compute
from nvtrader_rl_dagster.local_trainer.config import ConfigError, load_config
from nvtrader_rl_dagster.local_trainer.console import (
    StepTimer,
    say,
    show_config,
    show_epoch,
    show_setup_complete,
    show_step,
    show_training,
    warn,
)
from nvtrader_rl_dagster.local_trainer.dpo_loss import COUNTS, METRICS, mean_metrics
from nvtrader_rl_dagster.local_trainer.dpo_settings import DpoSettings
from nvtrader_rl_dagster.local_trainer.logprobs import check_packing
from nvtrader_rl_dagster.local_trainer.models import load_model
from nvtrader_rl_dagster.local_trainer.optim import build_optimizer, build_scheduler
from nvtrader_rl_dagster.local_trainer.pair_loading import load_pair_sets
from nvtrader_rl_dagster.local_trainer.pair_set import compute_reference, run_batch
from nvtrader_rl_dagster.local_trainer.time_limit import TimeLimit
from nvtrader_rl_dagster.local_trainer.validation import metric_names, validate, validation_batches


def run(config_path: Path, overrides: list[str]) -> None:
    """Train as the YAML says. Returns normally in the cases where NeMo-RL exits with 0."""
    config = load_config(config_path, overrides)
    show_config(str(config_path), overrides, config)
    settings = DpoSettings.from_config(config)
    say("The embedded trainer does not use the sections cluster and logger: metrics are on stdout")
    if settings.checkpoints.enabled:
        say(f"📊 Using checkpoint directory: {settings.checkpoints.folder}")
    torch.manual_seed(settings.seed)
    DpoTrainer(settings).train()


class DpoTrainer:
    """One run: data, model and position set up in the constructor, then ``train``."""

    def __init__(self, settings: DpoSettings) -> None:
        self.settings = settings
        self.tokenizer = load_tokenizer(settings.policy.section("tokenizer"))
        self.train_set, validation = load_pair_sets(
            settings.data, self.tokenizer, settings.max_length, settings.template_kwargs
        )
        self.validation = {
            name: (pairs, validation_batches(len(pairs), settings.val_batch_size, settings.val_batches))
            for name, pairs in validation.items()
        }
        self.order = BatchOrder(len(self.train_set), settings.batch_size, settings.shuffle, settings.seed)
        self._report_left_out()
        self.store = CheckpointStore(settings.checkpoints)
        self.store.repair()
        checkpoint = self.store.latest()

        say("\n▶ Setting up compute cluster...")
        compute = set_up_compute(settings.policy.section("local_trainer", optional=True))
        self.budget = compute.pack_tokens
        say(f"  ✓ Embedded trainer: 1 process, {compute.describe()}")
        say("\n▶ Setting up model...")
        self.model = load_model(settings.model_name)
        if len(self.tokenizer) > self.model.config.vocab_size:
            raise ConfigError(
                f"config: 'policy.tokenizer.name' has {len(self.tokenizer)} tokens, more than the "
                f"{self.model.config.vocab_size} of 'policy.model_name': they do not belong together."
            )
        check_packing(self.model)
        say("  ✓ Model initialized")

        self.epoch = self.step = self.position = self.total_steps = 0
        self.consumed_samples = self.total_valid_tokens = 0
        if checkpoint is not None:
            self._read_position(checkpoint)
        self._compute_reference()
        if checkpoint is not None:
            say(f"Resuming from {checkpoint} after step {self.total_steps}")
            self.model = load_model(str(checkpoint / WEIGHTS))
        self.trained = checkpoint is not None
        self.optimizer = build_optimizer(self.model.parameters(), settings.policy)
        self.scheduler = build_scheduler(self.optimizer, settings.policy)
        if checkpoint is not None:
            self._read_optimizer(checkpoint)
        show_setup_complete()

    def _report_left_out(self) -> None:
        rows, size = self.order.rows, self.order.batch_size
        rest = rows - self.order.batches * size
        if rest and self.order.batches:
            warn(f"{rest} of {rows} pairs are left out in each epoch: they do not fill a batch of {size}")

    def _read_position(self, checkpoint: Path) -> None:
        info, state = read_info(checkpoint), read_torch(checkpoint / DATALOADER)
        self.epoch, self.step, self.total_steps = info["epoch"], info["step"], info["total_steps"]
        self.consumed_samples = info["consumed_samples"]
        self.total_valid_tokens = info.get("total_valid_tokens", 0)
        self.position = state["position"]
        now = self.order.state(state["epoch"], state["position"])
        changed = [key for key, value in state.items() if now.get(key) != value]
        if changed:
            warn(f"the resumed run had other {', '.join(changed)}: the old position {self.position} is kept")

    def _read_optimizer(self, checkpoint: Path) -> None:
        path = checkpoint / OPTIMIZER
        if not path.exists():
            warn(f"{path} does not exist: optimizer and scheduler start fresh")
            return
        state = read_torch(path)
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])

    def _remaining_batches(self, epoch: int) -> list[list[int]]:
        """Batches that are still to run in ``epoch``, not counting the step limit."""
        return self.order.epoch(epoch)[self.position if epoch == self.epoch else 0 :]

    def _compute_reference(self) -> None:
        """Reference log-probs of every pair that this run will meet, in the first epoch's batches.

        Always that order: the first step then compares bit-equal numbers, and a resumed run gets the same ones.
        """
        steps_left = max(self.settings.max_steps - self.total_steps, 0)
        needed: set[int] = set()
        for epoch in range(self.epoch, self.settings.max_epochs):
            if steps_left <= 0 or not self.order.batches or len(needed) == len(self.train_set):
                break
            batches = self._remaining_batches(epoch)[:steps_left]
            steps_left -= len(batches)
            needed.update(row for batch in batches for row in batch)
        train_batches = [batch for batch in self.order.all_rows(0) if needed.intersection(batch)]
        compute_reference(self.model, [(self.train_set, train_batches), *self.validation.values()], self.budget)

    def train(self) -> None:
        """Run all remaining steps; validation and checkpoints as configured."""
        settings = self.settings
        if settings.checkpoints.enabled and self.order.batches and self.total_steps < settings.max_steps:
            check_metric_name(
                settings.checkpoints.metric_name,
                {*METRICS, *COUNTS, "grad_norm", "lr"},
                metric_names(list(self.validation)),
            )
        if settings.val_at_start and self.total_steps == 0:
            say("\n🔍 Running initial validation...")
            validate(self.model, self.validation, settings.loss, self.budget, 0)
        limit = TimeLimit(settings.checkpoints.must_save_by)
        while self.epoch < settings.max_epochs and self.total_steps < settings.max_steps:
            show_epoch(self.epoch + 1, settings.max_epochs)
            if not self.order.batches:
                break
            for batch in self._remaining_batches(self.epoch):
                out_of_time = self._run_step(batch, limit)
                if out_of_time:
                    say("Timeout has been reached, stopping training early")
                    return
                if self.total_steps >= settings.max_steps:
                    say("Max number of steps has been reached, stopping training early")
                    return
            self.epoch += 1
            self.step = self.position = 0
        if not limit.steps:
            warn(f"no training step was done: {self._why_no_step()}")

    def _why_no_step(self) -> str:
        if not self.order.batches:
            return f"{self.order.rows} pairs do not fill one batch of {self.order.batch_size}"
        if self.total_steps:
            return (
                f"the run was complete at step {self.total_steps}; raise dpo.max_num_steps and, "
                "after a finished epoch, dpo.max_num_epochs"
            )
        return "dpo.max_num_steps or dpo.max_num_epochs is not above 0"

    def _run_step(self, batch: list[int], limit: TimeLimit) -> bool:
        """One training step with its validation, checkpoint and report; True when the time is up."""
        settings, store = self.settings, self.settings.checkpoints
        show_step(self.step + 1, min(self.order.batches, settings.max_steps))
        last_of_run = self.total_steps + 1 >= settings.max_steps or (
            self.epoch + 1 == settings.max_epochs and self.step + 1 == self.order.batches
        )
        timer = StepTimer()
        with timer.time("total_step_time"):
            say("▶ Taking a training step...")
            with timer.time("policy_training"):
                metrics, extra = self._update(batch)
            self.step += 1
            self.position += 1
            self.total_steps += 1
            self.consumed_samples += settings.batch_size
            self.total_valid_tokens += int(metrics["global_valid_toks"])
            validation: dict[str, float] = {}
            due = settings.val_period > 0 and self.total_steps % settings.val_period == 0
            if due or (settings.val_at_end and last_of_run):
                validation = validate(self.model, self.validation, settings.loss, self.budget, self.total_steps)
            out_of_time = limit.reached_after_step()
            save_due = last_of_run or self.total_steps % store.save_period == 0 or out_of_time
            if store.enabled and save_due:
                with timer.time("checkpointing"):
                    self._save(metrics | extra, validation)
        show_training(metrics, timer)
        return out_of_time

    def _update(self, batch: list[int]) -> tuple[dict[str, float], dict[str, float]]:
        """Gradient of the batch and one optimiser step; the printed metrics, and grad_norm and lr."""
        lr = float(self.optimizer.param_groups[0]["lr"])
        valid = self.train_set.valid(batch)
        columns = run_batch(self.model, self.train_set, batch, self.settings.loss, self.budget, train=True)
        metrics = mean_metrics(columns, self.train_set.trained_tokens(valid))
        if not valid:
            warn("no pair of this batch is within the length limit: the weights stay as they are")
            return metrics, {"grad_norm": 0.0, "lr": lr}
        limit = math.inf if self.settings.max_grad_norm is None else self.settings.max_grad_norm
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.trained = True
        return metrics, {"grad_norm": float(grad_norm), "lr": lr}

    def _save(self, metrics: dict[str, float], validation: dict[str, float]) -> None:
        if not self.trained:
            warn("no checkpoint: the weights are still those of the base model")
            return
        store = self.store.settings
        info = {
            "epoch": self.epoch,
            "step": self.step % self.order.batches,
            "total_steps": self.total_steps,
            "consumed_samples": self.consumed_samples,
            "total_valid_tokens": self.total_valid_tokens,
            **validation,
            **tracked_metric(store.metric_name, metrics, validation),
        }

        def write_state(folder: Path) -> None:
            write_model(folder, self.model, self.tokenizer)
            if store.save_optimizer:
                state = {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}
                write_torch(folder / OPTIMIZER, state)
            write_torch(folder / DATALOADER, self.order.state(self.epoch, self.position))

        say(f"Saving checkpoint for step {self.total_steps}...")
        self.store.save(self.total_steps, info, self.settings.config, write_state)
