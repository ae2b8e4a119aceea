"""Embedded trainer against TRL's DPOTrainer: seconds a step on one batch, same numbers, float32, same threads.

    python benchmarks/trainer_speed.py [--model builtin:tiny] [--threads 1] [--steps 4] [--long]

Rounds alternate between the two, so that a busy neighbour hits both. TRL runs with the options that keep float32
(no bf16, no checkpointing) as it comes, and tuned (micro-batch 1, precomputed reference).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from datasets import Dataset
from datasets.utils.logging import disable_progress_bar
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
from trl import DPOConfig, DPOTrainer

from nvtrader_rl_dagster.local_trainer.chat_tokens import tokenize_pairs
from nvtrader_rl_dagster.local_trainer.compute import DEFAULT_PACK_TOKENS
from nvtrader_rl_dagster.local_trainer.dpo_loss import DpoLoss
from nvtrader_rl_dagster.local_trainer.models import load_model, resolve_model
from nvtrader_rl_dagster.local_trainer.pair_set import PairSet, compute_reference, run_batch
from nvtrader_rl_dagster.local_trainer.preference_data import PreferencePair

BETA, RATE = 0.1, 1e-6
SENTENCE = "The semiconductor sleeve drifted above its target weight after earnings, and the cash buffer fell. "


class StepClock(TrainerCallback):
    """Wall and CPU seconds of each optimiser step, and the losses."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []
        self.losses: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = (time.perf_counter(), time.process_time())

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times.append((time.perf_counter() - self.start[0], time.process_time() - self.start[1]))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))


def pairs(count: int, long: bool) -> list[PreferencePair]:
    """``count`` pairs; long ones have prompts of about 300 tokens and answers of about 80."""
    prompt, answer = (15, 4) if long else (1, 1)
    return [
        PreferencePair(
            [{"role": "user", "content": f"Case {n}. " + SENTENCE * prompt + "What is the main risk?"}],
            [{"role": "assistant", "content": f"Concentration in {n} names. " + SENTENCE * answer}],
            [{"role": "assistant", "content": "Hard to say. " + "It depends on many things. " * (3 * answer)}],
            None,
            None,
            n,
        )
        for n in range(count)
    ]


def run_ours(name: str, tokenizer: Any, rows: list[PreferencePair], steps: int) -> tuple[StepClock, float]:
    """Steps of the packed core on the whole batch, and the seconds of the reference pass."""
    model, clock = load_model(name), StepClock()
    table = PairSet("train", tokenize_pairs(tokenizer, rows, 4096))
    start = time.perf_counter()
    compute_reference(model, [(table, [range(len(rows))])], DEFAULT_PACK_TOKENS)
    reference = time.perf_counter() - start
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    loss = DpoLoss(BETA, 1.0, 0.0, False, False)
    for _ in range(steps):
        clock.on_step_begin()
        columns = run_batch(model, table, range(len(rows)), loss, DEFAULT_PACK_TOKENS, train=True)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        clock.on_step_end()
        clock.losses.append(float(columns[:, 0].mean()))
    return clock, reference


def run_trl(name: str, tokenizer: Any, rows: list[PreferencePair], steps: int, *, tuned: bool) -> StepClock:
    """The same steps in TRL."""
    clock = StepClock()
    data = [{"prompt": row.context, "chosen": row.chosen, "rejected": row.rejected} for row in rows]
    micro = 1 if tuned else len(rows)
    with tempfile.TemporaryDirectory() as folder:
        options = DPOConfig(
            output_dir=folder,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=len(rows) // micro,
            precompute_ref_log_probs=tuned,
            max_steps=steps,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            beta=BETA,
            max_length=None,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            log_level="error",
        )
        trainer = DPOTrainer(
            model=load_model(name),
            args=options,
            train_dataset=Dataset.from_list(data),
            processing_class=tokenizer,
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="builtin:tiny", help="builtin:tiny, builtin:smollm2 or a folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4, help="steps a round; the first is not counted")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--long", action="store_true", help="long prompts and answers")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    disable_progress_bar()
    rows = pairs(options.pairs, options.long)
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(options.model))
    tokens = [
        len(side.tokens) for pair in tokenize_pairs(tokenizer, rows, 4096) for side in (pair.chosen, pair.rejected)
    ]
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "trl": [], "trl tuned": []}
    losses: dict[str, list[float]] = {}
    reference = 0.0
    for _ in range(options.rounds):
        clock, reference = run_ours(options.model, tokenizer, rows, options.steps)
        rounds = {"ours": clock}
        for label, tuned in (("trl", False), ("trl tuned", True)):
            rounds[label] = run_trl(options.model, tokenizer, rows, options.steps, tuned=tuned)
        for label, result in rounds.items():
            times[label] += result.times[1:]
            losses[label] = result.losses
    print(f"{options.model}: {len(rows)} pairs, {sum(tokens)} tokens, {options.threads} threads")
    print(f"reference pass (ours, once a run): {reference:.2f} s")
    ours = [statistics.median(column) for column in zip(*times["ours"], strict=True)]
    for label, samples in times.items():
        wall, cpu = (statistics.median(column) for column in zip(*samples, strict=True))
        shown = " ".join(f"{loss:.4f}" for loss in losses[label])
        print(
            f"{label:10s} {wall:8.3f} s wall a step, {wall / len(rows):.3f} a pair, {cpu:8.3f} CPU-s, "
            f"ratio to ours {wall / ours[0]:.2f} wall {cpu / ours[1]:.2f} CPU, losses {shown}"
        )


if __name__ == "__main__":
    main()
