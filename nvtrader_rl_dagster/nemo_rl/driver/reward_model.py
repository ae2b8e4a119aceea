"""Scores of a Bradley-Terry reward model that was exported as a Hugging Face folder.

NeMo-RL's own reward-model environment needs a second GPU; this one shares the policy's, or uses the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DEVICES = ("auto", "cpu", "cuda")
#: The GPUs of the driver, for actors that Ray gives none.
DEVICES_VARIABLE = "NVTRADER_CUDA_VISIBLE_DEVICES"
#: Tokens of a conversation, for a model that does not say.
_LONGEST = 4096
#: From here on, sigmoid hardly tells scores apart.
_SATURATED = 6.0


class RewardModel:
    """A sequence classifier with one output. center: the score that is worth 0.5."""

    def __init__(self, folder: Path, device: str = "auto", batch_size: int = 8, center: float = 0.0) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        if not (folder / "config.json").is_file():
            raise ValueError(
                f"env.nvtrader.reward_model: {folder} is no Hugging Face folder; export the checkpoint first"
            )
        self._device = _device(device)
        self._batch_size = batch_size
        self._center = center
        self._warned = False
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        # Of a conversation that is too long the answer is what counts.
        self._tokenizer.truncation_side = "left"
        self._tokenizer.padding_side = "right"
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        model = AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=1,
            dtype=torch.bfloat16 if self._device == "cuda" else torch.float32,
            local_files_only=True,
        )
        # It says where a padded sequence ends, whose last state is scored.
        model.config.pad_token_id = self._tokenizer.pad_token_id
        longest = getattr(model.config, "max_position_embeddings", None) or _LONGEST
        self._longest = min(self._tokenizer.model_max_length, longest)
        self._model = model.to(self._device).eval()
        print(f"[nvtrader] reward model {folder} on {self._device}", flush=True)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RewardModel:
        """From `{reward_model: folder, reward_model_device: auto, reward_model_batch: 8, reward_model_center: 0}`.

        Raises `ValueError` that names the key.
        """
        device = config.get("reward_model_device", "auto")
        if device not in DEVICES:
            raise ValueError(f"env.nvtrader.reward_model_device: {device!r} must be one of {', '.join(DEVICES)}")
        batch_size, center = int(config.get("reward_model_batch", 8)), float(config.get("reward_model_center", 0.0))
        return cls(Path(config["reward_model"]), device, batch_size, center)

    def scores(self, conversations: Sequence[Sequence[Mapping[str, str]]]) -> list[float]:
        """For each conversation sigmoid(score - center), in 0..1.

        Under Bradley-Terry that is the probability that its answer beats one whose score is the center. It makes the
        score comparable with the other rewards, and one that is beyond all measure cannot drown them. Bradley-Terry
        fixes scores up to a constant only: a model whose scores all lie far from 0 needs a center.
        """
        import torch

        texts = [self._text(conversation) for conversation in conversations]
        found: list[float] = []
        for start in range(0, len(texts), self._batch_size):
            batch = self._tokenizer(
                texts[start : start + self._batch_size],
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=self._longest,
                add_special_tokens=False,
            ).to(self._device)
            with torch.no_grad():
                logits = self._model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            found += logits[:, 0].float().tolist()
        self._warn_when_saturated(found)
        return torch.sigmoid(torch.tensor(found) - self._center).tolist()

    def _warn_when_saturated(self, scores: list[float]) -> None:
        # Also no warning for one that is no number: `Scoring` refuses it.
        if self._warned or not scores or not all(abs(score - self._center) >= _SATURATED for score in scores):
            return
        self._warned = True
        middle = sorted(scores)[len(scores) // 2]
        print(
            f"[nvtrader] reward model: all {len(scores)} scores lie {_SATURATED:g} or more from the center "
            f"{self._center:g}, so that sigmoid hardly tells them apart; set env.nvtrader.reward_model_center to about "
            f"{middle:.3g}",
            flush=True,
        )

    def _text(self, conversation: Sequence[Mapping[str, str]]) -> str:
        """The chat template, with begin and end of text where it has none: as NeMo-RL's RM training renders it."""
        text = str(self._tokenizer.apply_chat_template([dict(message) for message in conversation], tokenize=False))
        begin, end = self._tokenizer.bos_token, self._tokenizer.eos_token
        if begin and not text.startswith(begin):
            text = begin + text
        if end and not text.rstrip("\n").endswith(end):
            text += end
        return text


def _device(wanted: str) -> str:
    """`cpu` or `cuda`. Ray hides the GPU from an actor that asked for none; the driver noted what it saw itself."""
    import torch

    if wanted == "cpu":
        return "cpu"
    seen = os.environ.get(DEVICES_VARIABLE)
    if seen is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = seen
    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise ValueError("env.nvtrader.reward_model_device is cuda, but torch sees no GPU")
    return "cpu"
