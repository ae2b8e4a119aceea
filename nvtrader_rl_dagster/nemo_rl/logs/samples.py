"""Rollouts that NeMo-RL's RL algorithms write down: `train_data_step<G>.jsonl`, `val_data_step<G>.jsonl`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nvtrader_rl_dagster.nemo_rl.metric_names import Split

_NAME = re.compile(r"(train|val)_data_step(\d+)\.jsonl")


@dataclass(frozen=True)
class RolloutSample:
    """One answer. step is global; text is the whole conversation, turns separated by blank lines.

    reward, tokens (of prompt and answer) and advantage (mean over the trained tokens) are None where they were not
    written; a reward that is no finite number is None as well.
    """

    step: int
    split: Split
    index: int
    text: str
    reward: float | None
    tokens: int | None
    advantage: float | None


def sample_files(folder: Path) -> list[Path]:
    """The sample files in `folder` (NeMo-RL's `logger.log_dir` or one of its `exp_NNN`) and below, by step."""
    found = [(match, path) for path in folder.rglob("*_data_step*.jsonl") if (match := _NAME.fullmatch(path.name))]
    return [path for match, path in sorted(found, key=lambda pair: (int(pair[0][2]), pair[0][1], pair[1]))]


def read_samples(path: Path) -> Iterator[RolloutSample]:
    """The samples of one file; a last line that is cut off is left out.

    Raises `ValueError` naming file, line and remedy for a name or line that is not NeMo-RL's.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path}: the name is not train_data_step<N>.jsonl or val_data_step<N>.jsonl; keep NeMo-RL's")
    split: Split = "train" if match.group(1) == "train" else "validation"
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = {key: _alone(value) for key, value in _loads(line).items()}
                yield RolloutSample(
                    step=int(match.group(2)),
                    split=split,
                    index=int(row["idx"]),
                    text=_text(row["content"]),
                    reward=_finite(row.get("rewards")),
                    tokens=row.get("input_lengths"),
                    advantage=_mean(row.get("advantages"), row.get("token_loss_mask")),
                )
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if not line.endswith(b"\n"):
                    return
                raise ValueError(
                    f"{path}: line {number} is no sample of NeMo-RL ({error!r}); copy it again from the log folder"
                ) from error


def _loads(line: bytes) -> dict[str, Any]:
    # NeMo-RL writes NaN and Infinity, which are no JSON, only in float lists and rewards.
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        import json

        return json.loads(line)


def _alone(value: Any) -> Any:
    """NeMo-RL writes batches of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n\n".join(_text(turn) for turn in content)
    return _text(content["content"]) if isinstance(content, dict) else str(content)


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _mean(values: Any, mask: Any) -> float | None:
    """NeMo-RL has one advantage a token, and trains those whose mask is not 0."""
    if not isinstance(values, list):
        return _finite(values)
    kept = [v for v, m in zip(values, mask or [1] * len(values), strict=True) if m]
    return _finite(sum(kept) / len(kept)) if kept else None
