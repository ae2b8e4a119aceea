"""The pair builder: all feedback on one prompt in, preference pairs and the fate of every event out. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nvtrader_rl_dagster.feedback.cycles import components
from nvtrader_rl_dagster.feedback.events import StoredEvent, canonical_json
from nvtrader_rl_dagster.feedback.messages import Message
from nvtrader_rl_dagster.feedback.votes import Tally, tally

PAIR_CAP = 64
Edge = tuple[bytes, bytes]  # (chosen, rejected) as canonical JSON


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """A trainable comparison.

    pair_id: first 32 hex digits of the SHA-256 of the canonical JSON of [prompt, chosen, rejected].
    weight: share of the votes behind the pair, in (0, 1]; of a pair made from decisions the weaker of both shares.
    seqs: the events behind it. origin: "preference", "approve_reject" or "edit".
    """

    pair_id: str
    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    weight: float
    seqs: tuple[int, ...]
    prompt_hash: str
    origin: str


@dataclass
class Judgement:
    """What the feedback on one prompt amounts to.

    fates: one (seq, reason) for each event; None for an event that is in a pair. unpaired: one decision for each
    answer that has a verdict and is in no pair.
    """

    pairs: list[PreferencePair] = field(default_factory=list)
    fates: list[tuple[int, str | None]] = field(default_factory=list)
    unpaired: list[StoredEvent] = field(default_factory=list)


@dataclass
class _Candidate:
    chosen: list[Message]
    rejected: list[Message]
    weight: float
    origin: str
    owners: set[int]
    seqs: set[int]


@dataclass
class _Answer:
    """An answer that a majority approved or rejected."""

    key: bytes
    messages: list[Message]
    verdict: Tally


def judge_prompt(events: Sequence[StoredEvent], *, pair_cap: int = PAIR_CAP) -> Judgement:
    """Pairs from all events of one prompt; the pairs do not depend on the order of the events.

    Votes are counted per comparison, comparisons on a cycle are dropped, then approved and rejected answers are
    combined (at most `pair_cap` pairs) and edits compared with what they replaced. A pair from decisions never
    overrides an explicit comparison.
    """
    if not events:
        return Judgement()
    fates: dict[int, str | None] = {}
    preferences: list[StoredEvent] = []
    decisions: list[StoredEvent] = []
    for item in sorted(events, key=lambda item: item.seq):
        if item.event.kind == "undo":
            fates[item.seq] = "undo_event"
        elif item.undone:
            fates[item.seq] = "undone"
        elif item.event.kind == "preference":
            preferences.append(item)
        else:
            decisions.append(item)
    kept, undecided = _explicit(preferences, fates)
    unpaired = _derived(decisions, kept, undecided, fates, pair_cap) if decisions else []
    first = events[0]
    prompt = canonical_json(first.event.prompt)
    pairs = [
        PreferencePair(
            pair_id=hashlib.sha256(b"[%b,%b,%b]" % (prompt, chosen, rejected)).hexdigest()[:32],
            prompt=first.event.prompt,
            chosen=made.chosen,
            rejected=made.rejected,
            weight=made.weight,
            seqs=tuple(sorted(made.seqs)),
            prompt_hash=first.prompt_hash,
            origin=made.origin,
        )
        for (chosen, rejected), made in sorted(kept.items())
    ]
    return Judgement(pairs, sorted(fates.items()), unpaired)


def _explicit(
    preferences: list[StoredEvent], fates: dict[int, str | None]
) -> tuple[dict[Edge, _Candidate], dict[frozenset[bytes], str]]:
    """Comparisons that the reviewers decided, and the reason for each unordered pair of answers left undecided."""
    questions: dict[Edge, list[tuple[StoredEvent, tuple[int, int, int]]]] = {}
    answers: dict[bytes, list[Message]] = {}
    for item in preferences:
        chosen, rejected, votes = item.event.chosen, item.event.rejected, item.event.votes
        if chosen is None or rejected is None:
            raise ValueError(f"preference event {item.event.event_id} lacks a side")
        sides = canonical_json(chosen), canonical_json(rejected)
        answers[sides[0]], answers[sides[1]] = chosen, rejected
        if sides[0] > sides[1]:
            sides, votes = (sides[1], sides[0]), (votes[1], votes[0], votes[2])
        questions.setdefault(sides, []).append((item, votes))
    kept: dict[Edge, _Candidate] = {}
    undecided: dict[frozenset[bytes], str] = {}
    behind: dict[Edge, list[int]] = {}
    for (one, other), ballots in questions.items():
        verdict = tally(ballots)
        fates.update((item.seq, reason) for item, reason in verdict.others)
        if verdict.reason is not None:
            undecided[frozenset((one, other))] = verdict.reason
            continue
        edge = (one, other) if verdict.first_side_wins else (other, one)
        seqs = [item.seq for item in verdict.agreeing]
        fates.update((seq, "merged_vote") for seq in seqs)
        fates[seqs[0]] = None
        behind[edge] = [item.seq for item, _ in ballots]
        kept[edge] = _Candidate(answers[edge[0]], answers[edge[1]], verdict.share, "preference", {seqs[0]}, set(seqs))
    for edge in _on_cycles(kept, kept):
        del kept[edge]
        undecided[frozenset(edge)] = "preference_cycle"
        fates.update((seq, "preference_cycle") for seq in behind[edge] if fates[seq] != "contradiction")
    return kept, undecided


def _derived(
    decisions: list[StoredEvent],
    kept: dict[Edge, _Candidate],
    undecided: dict[frozenset[bytes], str],
    fates: dict[int, str | None],
    pair_cap: int,
) -> list[StoredEvent]:
    """Add the pairs that decisions give to `kept`; returns one decision for each answer left without a pair."""
    approved, rejected = _judged_answers(decisions, fates)
    made: dict[Edge, _Candidate] = {}
    blocked: dict[int, str] = {}

    def propose(edge: Edge, candidate: _Candidate) -> None:
        explicit = kept.get(edge)
        if explicit is not None:
            explicit.seqs |= candidate.seqs
            explicit.owners |= candidate.owners
            return
        reason = "outvoted" if edge[::-1] in kept else undecided.get(frozenset(edge))
        if reason is not None:
            blocked.update((seq, reason) for seq in candidate.owners)
        elif edge in made:
            made[edge].owners |= candidate.owners
            made[edge].seqs |= candidate.seqs
        else:
            made[edge] = candidate

    edits: dict[Edge, int] = {}
    for answer in approved + rejected:
        for item in answer.verdict.agreeing:
            edit = item.event.edit
            if edit is not None and edit != answer.messages:
                edge = (canonical_json(edit), answer.key)
                owner = edits.setdefault(edge, item.seq)
                propose(edge, _Candidate(edit, answer.messages, answer.verdict.share, "edit", {owner}, {item.seq}))
    for better, worse in _diagonal(approved, rejected, pair_cap):
        owners = {better.verdict.agreeing[0].seq, worse.verdict.agreeing[0].seq}
        seqs = {item.seq for item in better.verdict.agreeing + worse.verdict.agreeing}
        weight = min(better.verdict.share, worse.verdict.share)
        propose(
            (better.key, worse.key),
            _Candidate(better.messages, worse.messages, weight, "approve_reject", owners, seqs),
        )
    for edge in _on_cycles(made, [*kept, *made]):
        blocked.update((seq, "preference_cycle") for seq in made.pop(edge).owners)
    kept.update(made)
    used = set().union(*(candidate.owners for candidate in kept.values())) if kept else set()
    unpaired = []
    counterparts = bool(approved and rejected)
    for answer in approved + rejected:
        first, *agreeing = answer.verdict.agreeing
        answer_used = any(item.seq in used for item in answer.verdict.agreeing)
        missing = blocked.get(first.seq) or ("prompt_cap" if counterparts else "unpaired")
        fates[first.seq] = None if first.seq in used else "merged_vote" if answer_used else missing
        for item in agreeing:
            fates[item.seq] = None if item.seq in used else "merged_vote" if answer_used else fates[first.seq]
        if not answer_used and missing in ("unpaired", "prompt_cap"):
            unpaired.append(first)
    return unpaired


def _judged_answers(decisions: list[StoredEvent], fates: dict[int, str | None]) -> tuple[list[_Answer], list[_Answer]]:
    """Answers with a majority for approval and for rejection, in the order of their text."""
    answers: dict[bytes, list[StoredEvent]] = {}
    for item in decisions:
        answers.setdefault(canonical_json(item.event.response), []).append(item)
    approved: list[_Answer] = []
    rejected: list[_Answer] = []
    for key, items in sorted(answers.items()):
        verdict = tally([(i, (1, 0, 0) if i.event.verdict == "approve" else (0, 1, 0)) for i in items])
        fates.update((item.seq, reason) for item, reason in verdict.others)
        if verdict.reason is None:
            side = approved if verdict.first_side_wins else rejected
            side.append(_Answer(key, items[0].event.response or [], verdict))
    return approved, rejected


def _diagonal(approved: list[_Answer], rejected: list[_Answer], cap: int) -> Iterator[tuple[_Answer, _Answer]]:
    """Approved × rejected, at most `cap`, so that each answer is used before one of its side is used again."""
    shorter, longer = sorted((len(approved), len(rejected)))
    combinations = ((i, (i + shift) % shorter) for shift in range(shorter) for i in range(longer))
    for (i, j), _ in zip(combinations, range(cap), strict=False):
        a, r = (i, j) if len(approved) == longer else (j, i)
        yield approved[a], rejected[r]


def _on_cycles(candidates: Iterable[Edge], edges: Iterable[Edge]) -> list[Edge]:
    """Those of `candidates` that lie on a directed cycle of `edges`."""
    all_edges = list(edges)
    if len(all_edges) < 2:
        return []
    component = components(all_edges)
    return [edge for edge in candidates if component[edge[0]] == component[edge[1]]]
