"""Reads every row of a local data set once: which would end the run, how many there are, which may be too long."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import DataBlock
from nvtrader_rl_dagster.nemo_rl.preflight.json_rows import BrokenRow, RawRow, json_rows, repeated_key
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, refuse, warn
from nvtrader_rl_dagster.nemo_rl.preflight.row_rules import (
    NOTES,
    REMEDIES,
    Content,
    Problem,
    RowRule,
    benchmark_rule,
    binary_rule,
    chat_rule,
    rank_rule,
    response_rule,
)
from nvtrader_rl_dagster.nemo_rl.preflight.schema import Node
from nvtrader_rl_dagster.nemo_rl.preflight.table_rows import table_rows

#: Bad rows of one kind that are named; all are counted.
NAMED = 3
#: Tokens that a chat template may add to the text: once, and for each message.
TEMPLATE_TOKENS, TEMPLATE_TOKENS_PER_MESSAGE = 128, 32
#: `datasets` 4.7 reads a column of several kinds as JSON text; older ones refuse the file. Both tried.
_MIXED_TYPES = (4, 7)
#: 5.2 reads an array after a byte order mark and after blanks; 4.8 neither, and 4.6 the latter. All tried.
_ANY_ARRAY = (5, 2)
_KEY = re.compile(rb'"\s*:')
_JSON_REMEDIES = {
    "broken_json": "repair or remove the line",
    "bad_utf8": "write the file as UTF-8",
    "lone_surrogate": "remove the character, or write the whole pair",
    "repeated_key": "write each key once; nobody can say which value was meant",
    "byte_order_mark": "write the file without a byte order mark",
    "leading_blank": "begin the file with the bracket",
    "broken_csv": "quote cells that hold commas or line breaks",
    **REMEDIES,
}


@dataclass
class Scan:
    """What one pass over a data set found.

    longest_bytes: UTF-8 bytes of the longest conversation, an upper bound for its tokens without the template's.
    doubtful: conversations that may be longer than the limit, one JSON line per row.
    """

    block: DataBlock
    rows: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    named: dict[str, list[str]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    prompts: set[int] = field(default_factory=set)
    schema: Node = field(default_factory=Node)
    longest_bound: int = 0
    doubtful: IO[bytes] | None = None
    doubtful_rows: int = 0

    @property
    def bad(self) -> int:
        return sum(self.problems.values())

    def problem(self, line: int, code: str, where: str, message: str) -> None:
        self.problems[code] += 1
        named = self.named.setdefault(code, [])
        if len(named) < NAMED:
            named.append(f"{self.block.file}:{line}{f' {where}' if where else ''}: {message}")


@dataclass(frozen=True)
class LoaderRules:
    """Where loaders differ: the embedded trainer, and versions of the `datasets` library."""

    embedded: bool
    mixed_types: bool
    tolerated: frozenset[str]

    @classmethod
    def of(cls, case: Case) -> LoaderRules:
        arrays = frozenset({"byte_order_mark", "leading_blank"})
        if case.embedded:
            return cls(True, True, arrays)
        version = case.interpreter.release("datasets") if case.interpreter else ()
        # Without an answer: what the release pins (4.4.1 and 4.8.5).
        version = version or ((4, 4) if case.version == "0.6.0" else (4, 8))
        if version < _ANY_ARRAY:
            arrays = frozenset({"leading_blank"} if version < _MIXED_TYPES else ())
        return cls(False, version >= _MIXED_TYPES, arrays)


def scan(block: DataBlock, case: Case, rules: LoaderRules, limit: int | None) -> Scan:
    """One pass over a local file. limit: tokens that a conversation may have; None counts no lengths."""
    assert block.file is not None
    found = Scan(block)
    rule = _rule(block, case, rules)
    added = _added_text(block, case)
    for row in _rows(block, rules):
        if isinstance(row, BrokenRow):
            found.rows += row.line > 0
            if row.code not in rules.tolerated:
                found.problem(row.line, row.code, "", row.message)
            continue
        found.rows += 1
        if not isinstance(row.value, dict):
            found.problem(row.line, "not_object", "", "it is no JSON object")
            continue
        keys = found.schema.add(row.value, row.line)
        if row.text and len(_KEY.findall(row.text)) != keys and not rules.embedded and _clashes(found, row):
            continue
        content = rule(row.value)
        if isinstance(content, Problem):
            found.problem(row.line, content.code, content.field, content.message)
            continue
        found.prompts.add(content.prompt)
        if content.note:
            found.notes[content.note] += 1
        if limit is not None:
            _measure(found, row, content, limit, added)
    return found


def findings_of(found: Scan, rules: LoaderRules) -> Iterator[Finding]:
    """What a scan means for the run."""
    block = found.block
    if not found.rows:
        yield refuse("no_rows", f"{block.name}: {block.file} has no row", "write rows into it; import more feedback")
        return
    for code, count in found.problems.most_common():
        some = "; ".join(found.named[code])
        more = f" (and {count - NAMED:,} more)" if count > NAMED else ""
        message = f"{block.name}: {count:,} of {found.rows:,} rows: {some}{more}"
        yield refuse(code, message, _JSON_REMEDIES[code])
    for note, count in found.notes.most_common():
        text, remedy = NOTES[note]
        yield warn(note, f"{block.name}: {count:,} of {found.rows:,} rows: {text}", remedy)
    if not rules.embedded:
        yield from _columns(found, rules)


def _columns(found: Scan, rules: LoaderRules) -> Iterator[Finding]:
    block = found.block
    response = block.dataset_name == "ResponseDataset"
    messages = response and "messages" in found.schema.keys
    output = str(block.settings.get("output_key") or "output")
    if response and not messages and output not in found.schema.keys and "missing_field" not in found.problems:
        yield refuse("missing_field", f"{block.name}: no row has {output}", REMEDIES["missing_field"])
    if "task_name" in found.schema.keys and (block.dataset_name == "PreferenceDataset" or messages):
        message = f"{block.name}: {block.file} has a column task_name, which NeMo-RL adds itself"
        yield refuse("task_name", message, "remove task_name from the rows")
    for path, node in found.schema.walk():
        if node.clash is not None:
            kind, line = node.clash
            message = f"{block.name}: {path} is {node.kind} at {block.file}:{node.line} and {kind} at line {line}"
            if rules.mixed_types:
                yield warn("mixed_types", message, "write one kind of value; the loader keeps the others as JSON")
            else:
                yield refuse("mixed_types", message, "write one kind of value for each key in all rows")
        if node.kind == "text" and node.all_times and node.clash is None and _is_text_of(block, path):
            message = f"{block.name}: every {path} in {block.file} is a date, and the loader would not keep it as text"
            yield refuse("all_dates", message, "add a word to at least one of them, or write them in another way")


def _is_text_of(block: DataBlock, path: str) -> bool:
    """Whether a key's text goes through the chat template."""
    if block.file is None or block.file.suffix not in (".json", ".jsonl", ".gz", ".JSONL"):
        return False
    keys = {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected", "input": "input", "output": "output"}
    named = {str(block.settings.get(f"{name}_key", key)) for name, key in keys.items()}
    wanted = {
        "PreferenceDataset": {"context[].content", "completions[].completion[].content"},
        "BinaryPreferenceDataset": named - {"input", "output"} | {"prompt[].content"},
        "ResponseDataset": named - {"prompt", "chosen", "rejected"} | {"messages[].content"},
        "openai_format": {f"{block.settings.get('chat_key', 'messages')}[].content"},
        "local": {str(block.settings.get("problem_key"))},
    }
    return path in wanted.get(block.dataset_name, set())


def _clashes(found: Scan, row: RawRow) -> bool:
    key = repeated_key(row.text)
    if key is not None:
        found.problem(row.line, "repeated_key", key, "the key stands twice in one object")
    return key is not None


def _measure(found: Scan, row: RawRow, content: Content, limit: int, added: int) -> None:
    messages = max(len(side) for side in content.sides)
    template = TEMPLATE_TOKENS + TEMPLATE_TOKENS_PER_MESSAGE * messages + added
    # JSON text is never shorter than the UTF-8 of what it holds.
    bound = row.size + template
    if not row.size or bound >= limit:
        texts = (sum(len(str(m["content"] or "").encode()) for m in side) for side in content.sides)
        bound = max(texts) + template
    found.longest_bound = max(found.longest_bound, bound)
    if bound >= limit:
        if found.doubtful is None:
            found.doubtful = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the scan
        found.doubtful.write(orjson.dumps(content.sides, option=orjson.OPT_APPEND_NEWLINE))
        found.doubtful_rows += 1


def _rows(block: DataBlock, rules: LoaderRules) -> Iterator[RawRow | BrokenRow]:
    assert block.file is not None
    suffix = block.file.suffix
    if block.dataset_name == "local":
        suffix = f".{block.settings.get('file_format', suffix[1:])}"
    if suffix == ".gz":
        yield from _gzip_rows(block.file)
    elif block.dataset_name == "openai_format" or suffix in (".jsonl", ".json"):
        yield from json_rows(block.file, strict=rules.embedded)
    else:
        yield from table_rows(block.file, suffix)


def _gzip_rows(file: Path) -> Iterator[RawRow | BrokenRow]:
    """`openai_format` unpacks as it reads."""
    import gzip
    import shutil

    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "rows.jsonl"
        with gzip.open(file) as packed, plain.open("wb") as out:
            shutil.copyfileobj(packed, out)
        yield from json_rows(plain)


def _rule(block: DataBlock, case: Case, rules: LoaderRules) -> RowRule:
    named: dict[str, Any] = block.settings

    def key(name: str, default: str) -> str:
        return str(named.get(f"{name}_key") or default)

    if block.dataset_name == "PreferenceDataset":
        return rank_rule(rules.embedded)
    if block.dataset_name == "BinaryPreferenceDataset":
        return binary_rule(key("prompt", "prompt"), key("chosen", "chosen"), key("rejected", "rejected"))
    if block.dataset_name == "openai_format":
        return chat_rule(key("chat", "messages"), named.get("system_key"), named.get("system_prompt"))
    if block.dataset_name == "ResponseDataset":
        return response_rule(key("input", "input"), key("output", "output"), case.rl, rules.mixed_types)
    return benchmark_rule(key("problem", "problem"), key("solution", "solution"))


def _added_text(block: DataBlock, case: Case) -> int:
    """Bytes that prompt files add to each row."""
    files = [block.settings.get("prompt_file"), block.settings.get("system_prompt_file")]
    paths = [case.path(name) for name in files if isinstance(name, str)]
    return sum(path.stat().st_size for path in paths if path.is_file())
