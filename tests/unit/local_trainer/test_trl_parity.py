"""The same batch through TRL's DPOTrainer: loss, gradient and weights agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_helpers import rank_row, write_rows

pytest.importorskip("trl", reason="TRL is the oracle and only a development dependency")

from datasets import Dataset
from transformers import TrainerCallback
from trl import DPOConfig, DPOTrainer

from nvtrader_rl_dagster.local_trainer.chat_tokens import tokenize_pairs
from nvtrader_rl_dagster.local_trainer.dpo_loss import DpoLoss
from nvtrader_rl_dagster.local_trainer.models import load_model
from nvtrader_rl_dagster.local_trainer.pair_set import PairSet, compute_reference, run_batch
from nvtrader_rl_dagster.local_trainer.preference_data import read_rank_file

STEPS, PAIRS, RATE, BETA = 5, 6, 5e-4, 0.1
# It ends with EOS, so that TRL adds none and both train on the same tokens.
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}{% endfor %}"
ROWS = [
    rank_row(n, chosen="Cost is the first risk: it is over budget.", rejected="It depends. " * (n % 3 + 1))
    for n in range(PAIRS)
]


class Recorder(TrainerCallback):
    """Losses as TRL logs them and the first (clipped) gradient."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.gradient: list[torch.Tensor] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if not self.gradient:
            self.gradient = [parameter.grad.clone() for parameter in model.parameters()]


def render(messages: list[dict[str, str]]) -> str:
    return "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>" for message in messages)


def run_trl(folder: Path, tokenizer: Any, **changes: Any) -> tuple[Recorder, Any]:
    """Train with TRL on rendered text: full batch, float32, no scheduler."""
    rows = [
        {"prompt": render(row["context"]), "chosen": render(row["completions"][1]["completion"]),
         "rejected": render(row["completions"][0]["completion"])}
        for row in ROWS
    ]  # fmt: skip
    options: dict[str, Any] = {
        "output_dir": str(folder), "per_device_train_batch_size": PAIRS, "max_steps": STEPS, "learning_rate": RATE,
        "lr_scheduler_type": "constant", "weight_decay": 0.0, "adam_beta2": 0.98, "adam_epsilon": 1e-5,
        "max_grad_norm": 1.0, "beta": BETA, "max_length": None, "bf16": False, "gradient_checkpointing": False,
        "use_cpu": True, "logging_steps": 1, "report_to": "none", "save_strategy": "no", "disable_tqdm": True,
    }  # fmt: skip
    model, recorder = load_model("builtin:tiny"), Recorder()
    trainer = DPOTrainer(model=model, args=DPOConfig(**options | changes), train_dataset=Dataset.from_list(rows),
                         processing_class=tokenizer, callbacks=[recorder])  # fmt: skip
    trainer.train()
    return recorder, model


def difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Relative error of all tensors together."""
    a, b = (torch.cat([tensor.detach().flatten().double() for tensor in side]) for side in (ours, theirs))
    return float(torch.linalg.norm(a - b) / torch.linalg.norm(b))


def our_first_gradient(tmp_path: Path, tokenizer: Any, loss: DpoLoss, budget: int) -> tuple[list[torch.Tensor], float]:
    tokenizer.chat_template = TEMPLATE
    model = load_model("builtin:tiny")
    pairs = tokenize_pairs(tokenizer, read_rank_file(write_rows(tmp_path / "pairs.jsonl", ROWS)), 512)
    table = PairSet("train", pairs)
    compute_reference(model, [(table, [range(PAIRS)])], budget)
    columns = run_batch(model, table, range(PAIRS), loss, budget, train=True)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return [parameter.grad for parameter in model.parameters()], float(columns[:, 0].mean())


@pytest.fixture
def own_tokenizer(tiny_folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_folder)


def test_losses_gradient_and_weights_agree_over_several_steps(
    train: Callable[..., str], workspace: Path, own_tokenizer: Any
) -> None:
    recorder, theirs = run_trl(workspace / "trl", own_tokenizer)
    write_rows(workspace / "train.jsonl", ROWS)
    out = train({
        "policy.train_global_batch_size": PAIRS, "dpo.max_num_steps": STEPS, "dpo.max_num_epochs": STEPS,
        "dpo.reference_policy_kl_penalty": BETA, "policy.scheduler": None, "policy.local_trainer": {"pack_tokens": 150},
        "policy.tokenizer": {"name": "builtin:tiny", "chat_template": TEMPLATE}, "data.validation": None,
        "checkpointing.metric_name": "train:loss", "policy.optimizer.kwargs":
            {"lr": RATE, "weight_decay": 0.0, "betas": [0.9, 0.98], "eps": 1e-5, "foreach": False, "fused": False},
    })  # fmt: skip
    losses = [float(value) for value in re.findall(r"  • loss: (\S+)", out)]
    assert len(losses) == STEPS
    assert losses == pytest.approx(recorder.losses, abs=1e-4)
    assert losses[-1] < 0.6
    ours = load_model(str(workspace / f"ckpt/step_{STEPS}/policy/weights/model/consolidated"))
    base = list(load_model("builtin:tiny").parameters())
    moved = [[p - b for p, b in zip(m.parameters(), base, strict=True)] for m in (ours, theirs)]
    assert difference(moved[0], moved[1]) < 1e-4
    assert difference(list(ours.parameters()), list(theirs.parameters())) < 1e-6
    gradient, loss = our_first_gradient(workspace, own_tokenizer, DpoLoss(BETA, 1.0, 0.0, False, False), 150)
    assert loss == pytest.approx(recorder.losses[0], abs=1e-6)
    assert difference(gradient, recorder.gradient) < 1e-5


def test_the_sft_term_and_the_average_agree_too(workspace: Path, own_tokenizer: Any) -> None:
    # TRL's "sft" is the mean over all chosen tokens of the batch, which equals the mean of per-pair means only
    # when all chosen sides are equally long, as here.
    recorder, _ = run_trl(
        workspace / "trl", own_tokenizer, max_steps=1, loss_type=["sigmoid_norm", "sft"], loss_weights=[0.8, 0.3]
    )
    gradient, loss = our_first_gradient(workspace, own_tokenizer, DpoLoss(BETA, 0.8, 0.3, True, True), 150)
    assert loss == pytest.approx(recorder.losses[0], abs=1e-5)
    assert difference(gradient, recorder.gradient) < 1e-4
