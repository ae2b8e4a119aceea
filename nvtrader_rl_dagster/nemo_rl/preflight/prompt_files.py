"""Prompt files: NeMo-RL fills them with `str.format`, so other braces in them end the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import DataBlock
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, refuse, warn


def check_prompt_files(case: Case, blocks: Sequence[DataBlock]) -> Iterator[Finding]:
    """The files are there and can be filled; relative ones are looked up from NeMo-RL's working directory."""
    seen = set()
    for block in blocks:
        for key in ("prompt_file", "system_prompt_file"):
            name = block.settings.get(key)
            if not isinstance(name, str) or (key, name) in seen:
                continue
            seen.add((key, name))
            path = case.path(name)
            if not path.is_file():
                yield refuse("prompt_file", f"{block.key}.{key}: {path} is not there", "give its full path")
            elif key == "prompt_file":
                yield from _filled(path.read_text(encoding="utf-8"), f"{block.key}.{key}: {path}")
            elif case.preference or case.section == "sft":
                yield warn("system_prompt_file", f"{block.key}.{key} has no effect here", "write it into the rows")


def _filled(text: str, where: str) -> Iterator[Finding]:
    try:
        filled = text.format("\0")
    except (IndexError, KeyError, ValueError) as error:
        message = f"{where} cannot be filled ({type(error).__name__}: {error})"
        yield refuse("prompt_file", message, "write {} where the prompt goes, and double all other braces")
        return
    if "\0" not in filled:
        yield warn("prompt_file", f"{where} has no {{}}: the prompts would not be in it", "write {} where they go")
