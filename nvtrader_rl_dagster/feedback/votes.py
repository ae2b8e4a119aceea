"""Majority votes: who counts as one voter, and which side wins."""

from __future__ import annotations

from dataclasses import dataclass, field

from nvtrader_rl_dagster.feedback.events import StoredEvent, Votes


@dataclass
class Tally:
    """The outcome of one question. `reason` is set when nothing is decided.

    agreeing: the events on the winning side in order of seq. others: every event with its reason.
    share: votes of the winning side out of all votes, in (0, 1].
    """

    reason: str | None = None
    first_side_wins: bool = False
    share: float = 0.0
    agreeing: list[StoredEvent] = field(default_factory=list)
    others: list[tuple[StoredEvent, str]] = field(default_factory=list)


_DECIDED: tuple[Votes, Votes] = ((1, 0, 0), (0, 1, 0))


def tally(ballots: list[tuple[StoredEvent, Votes]]) -> Tally:
    """Decide between two sides; each ballot's votes are (first side, second side, tie), in order of seq.

    A ballot with more than one vote is a panel and counts as it is. All other ballots of one reviewer are one voter,
    and so are all ballots without a reviewer. A voter on both sides is a contradiction and does not count; a
    voter's tie gives way to the same voter's choice. The side with strictly the most votes wins.
    """
    if len(ballots) == 1 and ballots[0][1] in _DECIDED:
        # Most comparisons are judged once.
        return Tally(None, ballots[0][1] == _DECIDED[0], 1.0, [ballots[0][0]])
    result = Tally()
    sides_of: dict[str | None, set[int]] = {}
    total = [0, 0, 0]
    for item, votes in ballots:
        if sum(votes) == 1:
            sides_of.setdefault(item.event.reviewer, set()).add(votes.index(1))
        else:
            for side in range(3):
                total[side] += votes[side]
    for sides in sides_of.values():
        if not {0, 1} <= sides:
            total[min(sides)] += 1
    counted = []
    for item, votes in ballots:
        if sum(votes) == 1 and {0, 1} <= sides_of[item.event.reviewer]:
            result.others.append((item, "contradiction"))
        else:
            counted.append((item, votes))
    if not counted:
        result.reason = "contradiction"
        return result
    most = max(total)
    if total.count(most) > 1 or total[2] == most:
        result.reason = "no_majority" if total.count(most) > 1 else "tie"
        result.others += [(item, result.reason) for item, _ in counted]
        return result
    winner = total.index(most)
    loser = 1 - winner
    agreeing = [item for item, votes in counted if votes[winner] > max(votes[loser], votes[2])]
    if not agreeing:  # every panel is split for itself, only their sum decides
        agreeing = [item for item, votes in counted if votes[winner]]
    seqs = {item.seq for item in agreeing}
    result.first_side_wins = winner == 0
    result.share = most / sum(total)
    result.agreeing = agreeing
    result.others += [(item, "outvoted") for item, _ in counted if item.seq not in seqs]
    return result
