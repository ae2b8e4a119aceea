"""Runs in NeMo-RL's interpreter: what its own loaders and processors make of data files.

Reads {"source": tree, "tokenizer": folder, "cases": [{"name", "algo", "data"}]} from standard input and prints one
JSON object: name to [rows, rows that are masked] or to the error that would end the run.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import sys
import typing
from pathlib import Path
from typing import Any


def tree_modules(source: Path) -> dict[str, Any]:
    """The functions of the tree that set up data, by algorithm."""
    sys.path.insert(0, str(source))
    if sys.version_info < (3, 12):  # pydantic refuses the older TypedDict
        import typing_extensions

        typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc]
    from nemo_rl.algorithms.utils import get_tokenizer
    from nemo_rl.data.utils import setup_preference_data, setup_response_data

    spec = importlib.util.spec_from_file_location("run_sft", source / "examples" / "run_sft.py")
    assert spec is not None and spec.loader is not None
    run_sft = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run_sft)
    return {
        "tokenizer": get_tokenizer,
        "dpo": setup_preference_data,
        "sft": run_sft.setup_data,
        "grpo": lambda tokenizer, data: setup_response_data(tokenizer, data, None),
    }


def outcome(setup: Any, tokenizer: Any, data: dict[str, Any]) -> Any:
    """Rows and masked rows of the training set, every row processed as a run would; or the error."""
    try:
        train, _ = setup(tokenizer, copy.deepcopy(data))
        rows = [train[index] for index in range(len(train))]
        return [len(rows), sum(1 for row in rows if not row["loss_multiplier"])]
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]


def main() -> None:
    task = json.load(sys.stdin)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        modules = tree_modules(Path(task["source"]))
        tokenizer = modules["tokenizer"]({"name": task["tokenizer"]})
        outcomes = {case["name"]: outcome(modules[case["algo"]], tokenizer, case["data"]) for case in task["cases"]}
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
