"""Pairs of a whole store: streamed pairs, unpaired decisions, everything set aside, and the report that counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from nvtrader_rl_dagster.feedback.events import StoredEvent
from nvtrader_rl_dagster.feedback.messages import text_length
from nvtrader_rl_dagster.feedback.pairs import PAIR_CAP, Judgement, PreferencePair, judge_prompt
from nvtrader_rl_dagster.feedback.reasons import REASONS
from nvtrader_rl_dagster.feedback.store import FeedbackStore

SAMPLE_SOURCE = "sample"
FIRST_PROBLEMS = 20
# Reasons that need no attention are counted but not listed among the first problems.
NO_PROBLEM = frozenset({"merged_vote", "undone", "undo_event", "sample_data", "outvoted"})


@dataclass
class PairReport:
    """What the feedback amounts to. decisions = used + Σ set_aside.

    decisions: stored events plus refused rows. used: events that are in a pair. by_source, by_origin: usable pairs.
    by_file: decisions per imported file. prompts: prompts with at least one pair. length_bias: how far length alone
    predicts the chosen side.
    """

    decisions: int = 0
    used: int = 0
    usable_pairs: int = 0
    set_aside: dict[str, int] = field(default_factory=dict)
    by_source: dict[str, int] = field(default_factory=dict)
    by_origin: dict[str, int] = field(default_factory=dict)
    by_file: dict[str, int] = field(default_factory=dict)
    prompts: int = 0
    length_bias: dict[str, float | None] = field(default_factory=dict)
    first_problems: list[dict[str, Any]] = field(default_factory=list)
    through_seq: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class _LengthBias:
    """Characters of both sides, summed over the pairs."""

    def __init__(self) -> None:
        self.pairs = self.longer = self.equal = self.chosen = self.rejected = 0

    def add(self, pair: PreferencePair) -> None:
        chosen, rejected = text_length(pair.chosen), text_length(pair.rejected)
        self.pairs += 1
        self.longer += chosen > rejected
        self.equal += chosen == rejected
        self.chosen += chosen
        self.rejected += rejected

    def to_dict(self) -> dict[str, float | None]:
        """longer_wins_accuracy: accuracy of the rule "the longer answer is chosen"; equal lengths count half."""
        n = self.pairs
        return {
            "longer_chosen": self.longer / n if n else None,
            "mean_chosen_chars": self.chosen / n if n else None,
            "mean_rejected_chars": self.rejected / n if n else None,
            "longer_wins_accuracy": (self.longer + self.equal / 2) / n if n else None,
        }


def iter_judgements(
    store: FeedbackStore,
    through_seq: int | None = None,
    *,
    pair_cap: int = PAIR_CAP,
    prompts: Collection[str] | None = None,
) -> Iterator[tuple[list[StoredEvent], Judgement]]:
    """The events and the judgement of every prompt (or of `prompts`), then of every undo event.

    Sample events are set aside as soon as the store holds events of another source.
    """
    drop_sample = store.holds_other_source(SAMPLE_SOURCE, through_seq)
    for group in store.iter_prompt_groups(through_seq, prompts=prompts):
        real = [item for item in group if item.event.source != SAMPLE_SOURCE] if drop_sample else group
        judgement = judge_prompt(real, pair_cap=pair_cap)
        if len(real) < len(group):
            judged = {item.seq for item in real}
            judgement.fates += [(item.seq, "sample_data") for item in group if item.seq not in judged]
        yield group, judgement
    for item in store.iter_undos(through_seq):
        yield [item], Judgement(fates=[(item.seq, "undo_event")])


def build_pairs(
    store: FeedbackStore,
    through_seq: int | None = None,
    *,
    on_prompt: Callable[[list[StoredEvent], Judgement], None] | None = None,
    pair_cap: int = PAIR_CAP,
) -> PairReport:
    """Judge everything up to `through_seq` (default: all), hand each prompt's events and judgement to `on_prompt`,
    and count."""
    report = PairReport(through_seq=store.last_seq() if through_seq is None else through_seq)
    set_aside: Counter[str] = Counter()
    by_source: Counter[str] = Counter()
    by_origin: Counter[str] = Counter()
    by_file: Counter[str] = Counter()
    length = _LengthBias()
    for group, judgement in iter_judgements(store, report.through_seq, pair_cap=pair_cap):
        of_seq = {item.seq: item for item in group}
        report.decisions += len(group)
        report.prompts += bool(judgement.pairs)
        by_file.update(item.event.metadata["file"] for item in group if "file" in item.event.metadata)
        if on_prompt is not None:
            on_prompt(group, judgement)
        for pair in judgement.pairs:
            report.usable_pairs += 1
            by_source[of_seq[pair.seqs[0]].event.source] += 1
            by_origin[pair.origin] += 1
            length.add(pair)
        for seq, reason in judgement.fates:
            if reason is None:
                report.used += 1
                continue
            set_aside[reason] += 1
            if reason not in NO_PROBLEM and len(report.first_problems) < FIRST_PROBLEMS:
                report.first_problems.append(event_problem(of_seq[seq], reason))
    refused: list[dict[str, Any]] = []
    for row in store.iter_set_aside():
        report.decisions += 1
        set_aside[row["reason"]] += 1
        by_file[row["file"]] += 1
        if len(refused) < FIRST_PROBLEMS:
            refused.append({key: row[key] for key in ("file", "line", "field", "reason", "detail")})
    report.first_problems = (refused + report.first_problems)[:FIRST_PROBLEMS]
    report.set_aside = dict(sorted(set_aside.items()))
    report.by_source = dict(sorted(by_source.items()))
    report.by_origin = dict(sorted(by_origin.items()))
    report.by_file = dict(sorted(by_file.items()))
    report.length_bias = length.to_dict()
    return report


def iter_pairs(
    store: FeedbackStore, through_seq: int | None = None, *, pair_cap: int = PAIR_CAP
) -> Iterator[PreferencePair]:
    """Every usable pair in order of the prompt's hash."""
    for _, judgement in iter_judgements(store, through_seq, pair_cap=pair_cap):
        yield from judgement.pairs


def set_aside_events(group: list[StoredEvent], judgement: Judgement) -> Iterator[dict[str, Any]]:
    """The events of one prompt that are in no pair, as problem entries with their `event_id`."""
    of_seq = {item.seq: item for item in group}
    for seq, reason in judgement.fates:
        if reason is not None:
            yield {**event_problem(of_seq[seq], reason), "event_id": of_seq[seq].event.event_id}


def event_problem(item: StoredEvent, reason: str) -> dict[str, Any]:
    """A problem entry for an event: where it came from and why it is set aside."""
    metadata = item.event.metadata
    return {
        "file": metadata.get("file"),
        "line": metadata.get("line"),
        "field": None,
        "reason": reason,
        "detail": REASONS[reason].explanation,
    }
