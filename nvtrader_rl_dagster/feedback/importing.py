"""Import files into the store: read, normalise, append, and count what became of every row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from nvtrader_rl_dagster.feedback.events import FeedbackEvent
from nvtrader_rl_dagster.feedback.import_report import FileReport, ImportReport
from nvtrader_rl_dagster.feedback.importers import FORMATS, ImportOptions, Outcome, read_row
from nvtrader_rl_dagster.feedback.messages import text_length
from nvtrader_rl_dagster.feedback.pair_report import NO_PROBLEM, event_problem, iter_judgements
from nvtrader_rl_dagster.feedback.readers import FeedbackFile, Row, iter_files, read_rows
from nvtrader_rl_dagster.feedback.readers.rows import excerpt
from nvtrader_rl_dagster.feedback.reasons import RowRejected
from nvtrader_rl_dagster.feedback.store import BATCH, RAW_LIMIT, FeedbackStore, SetAsideRow

_BATCH_CHARS = 8_000_000
_REFUSED_BATCH = 200
# Up to this many prompts are judged by themselves; above it the whole store is read in one pass.
_PROMPTS_BY_NAME = 5_000


def import_paths(
    store: FeedbackStore,
    paths: Iterable[str | Path],
    *,
    format: str = "auto",
    options: ImportOptions | None = None,
    source: str | None = None,
) -> ImportReport:
    """Import files and folders into the store and report the fate of every row.

    format: a name of `FORMATS`, or "auto" to recognise each row by its keys. source: written into every event;
    by default the format's name, and our own events keep theirs. The same file imported again appends nothing and
    gives the same counts. Raises FeedbackFileError for paths that cannot be imported, ValueError for the format.
    """
    if format != "auto" and format not in FORMATS:
        raise ValueError(f"unknown format {format!r}: use auto, {', '.join(FORMATS)}")
    files = list(iter_files(paths))
    run = _Import(store, format, options or ImportOptions(), source or "")
    for file in files:
        run.read(file)
    run.flush()
    run.count_fates()
    return run.report


class _Place(NamedTuple):
    """Where a decision comes from: the row, its number in the file, and which of the row's decisions."""

    file: FeedbackFile
    row: Row
    number: int
    part: int

    def refused(self, why: RowRejected) -> SetAsideRow:
        raw = excerpt(self.row.raw, RAW_LIMIT)
        return SetAsideRow(
            self.file.name, self.row.line, why.field, why.reason, why.detail, raw, self.number, self.part
        )


class _SeqSet:
    """A set of sequence numbers, one bit each, so that it stays small for millions of events."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self.count = 0

    def add(self, seq: int) -> bool:
        """Whether `seq` was not in the set before."""
        byte, bit = seq >> 3, 1 << (seq & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        self.count += 1
        return True

    def __contains__(self, seq: int) -> bool:
        byte = seq >> 3
        return byte < len(self._bits) and bool(self._bits[byte] & 1 << (seq & 7))


class _Import:
    def __init__(self, store: FeedbackStore, format_name: str, options: ImportOptions, source: str) -> None:
        self._store = store
        self._format = format_name
        self._options = options
        self._source = source
        self._pending: list[tuple[FeedbackEvent, _Place]] = []
        self._pending_chars = 0
        self._refused: list[SetAsideRow] = []
        self._touched = _SeqSet()
        self._prompts: set[str] | None = set()
        self.report = ImportReport(ranks=options.ranks)

    def read(self, file: FeedbackFile) -> None:
        report = FileReport(str(file.path))
        self.report.files.append(report)
        for row in read_rows(file):
            report.rows += 1
            report.partial |= row.partial
            name, outcomes = self._outcomes(row)
            if name:
                report.formats[name] = report.formats.get(name, 0) + 1
            refused = False
            for part, outcome in enumerate(outcomes):
                self.report.rows += 1
                place = _Place(file, row, report.rows, part)
                if isinstance(outcome, RowRejected):
                    refused = True
                    self._refuse(place.refused(outcome))
                else:
                    self._add(place, outcome)
            report.refused += refused
        if not report.rows:
            report.problem = "no_rows"
            self.report.note(
                {"file": file.name, "line": 0, "field": None, "reason": "no_rows", "detail": "the file holds no rows"}
            )

    def _outcomes(self, row: Row) -> tuple[str, list[Outcome]]:
        if row.problem is not None:
            return "", [row.problem]
        try:
            return read_row(row.value, self._options, name=self._format, source=self._source)
        except RowRejected as refused:
            return "", [refused]
        except RecursionError:
            return "", [RowRejected("bad_json", None, "nested too deeply")]

    def _add(self, place: _Place, event: FeedbackEvent) -> None:
        event.metadata.setdefault("file", place.file.name)
        event.metadata.setdefault("line", place.row.line)
        self._pending.append((event, place))
        raw = place.row.raw
        self._pending_chars += len(raw) if isinstance(raw, (bytes, str)) else text_length(event.prompt)
        if len(self._pending) >= BATCH or self._pending_chars >= _BATCH_CHARS:
            self.flush()

    def _refuse(self, row: SetAsideRow) -> None:
        self.report.set_aside[row.reason] += 1
        self.report.note(
            {"file": row.file, "line": row.line, "field": row.field, "reason": row.reason, "detail": row.detail}
        )
        self._refused.append(row)
        if len(self._refused) >= _REFUSED_BATCH:
            self._flush_refused()

    def _flush_refused(self) -> None:
        self._store.append_set_aside(self._refused)
        self._refused = []

    def flush(self) -> None:
        """Append what waits; rows that repeat an event of this import are set aside."""
        if self._pending:
            events = [event for event, _ in self._pending]
            done = self._store.append_batch(events)
            self.report.events += done.new
            known = {} if done.new == len(events) else self._store.events_of({e.event_id for e in events})
            for (event, place), seq, prompt_hash in zip(self._pending, done.seqs, done.prompt_hashes, strict=True):
                if known and not known[event.event_id].same_content(event):
                    detail = "this event_id is already stored with other content"
                    self._refuse(place.refused(RowRejected("bad_event", "event_id", detail)))
                elif not self._touched.add(seq):
                    detail = "the same row occurred before in this import"
                    self._refuse(place.refused(RowRejected("duplicate", None, detail)))
                elif self._prompts is not None:
                    self._prompts.add(prompt_hash)
                    if len(self._prompts) > _PROMPTS_BY_NAME:
                        self._prompts = None
            self._pending, self._pending_chars = [], 0
        self._flush_refused()

    def count_fates(self) -> None:
        """Judge the prompts that were touched and count what became of this import's events."""
        report = self.report
        report.already_stored = self._touched.count - report.events
        for group, judgement in iter_judgements(self._store, prompts=self._prompts):
            used: set[int] = set()
            for seq, reason in judgement.fates:
                if seq not in self._touched:
                    continue
                if reason is None:
                    used.add(seq)
                    continue
                report.set_aside[reason] += 1
                if reason not in NO_PROBLEM and not report.full:
                    report.note(event_problem(next(item for item in group if item.seq == seq), reason))
            if used:
                report.usable_pairs += sum(not used.isdisjoint(pair.seqs) for pair in judgement.pairs)
                report.decisions_used += sum(item.seq in used and item.event.kind == "decision" for item in group)
