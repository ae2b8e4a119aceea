"""Why a row or an event is set aside: the exception that refuses a row, and the one table of reason codes."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """One line on what the code means and one line on what to do about it."""

    explanation: str
    remedy: str


REASONS: dict[str, Reason] = {
    # the file or the line could not be read
    "truncated_json": Reason("the JSON text stops in the middle", "write the file again; the end is missing"),
    "bad_json": Reason("the line is not valid JSON", "repair the line; one JSON object per line"),
    "bad_csv": Reason("the CSV row does not fit the header or its quoting is broken", "repair the row"),
    "bad_utf8": Reason("bytes that are not UTF-8", "save the file as UTF-8"),
    "lone_surrogate": Reason("half of a UTF-16 surrogate pair, which is no character", "repair the escape sequence"),
    "duplicate_key": Reason("one JSON object holds the same key twice", "keep one of the two values"),
    "truncated_gzip": Reason("the gzip data is damaged or stops early", "copy or download the file again"),
    "unreadable_file": Reason("the file could not be opened or decoded", "check the file's format and permissions"),
    "no_rows": Reason("the file holds no rows", "check that the right file was given"),
    # the row's shape
    "unknown_shape": Reason("the row fits no known feedback format", "name the format, or rename the row's keys"),
    "bad_event": Reason("the row is not a valid feedback event", "correct the named field"),
    "bad_label": Reason("the label is not true/false or 1/0", "use true for approved and false for rejected"),
    "bad_preference": Reason("the preference value is outside the format's scale", "use the scale of the format"),
    "bad_rank": Reason(
        "ranks are missing or are not whole numbers", "give every completion an integer rank, 0 is best"
    ),
    "bad_role": Reason("a role is unknown or stands in the wrong place", "use system, user, assistant or tool"),
    "not_text": Reason("an answer or prompt is not text", "give text, or a list of messages"),
    "unsupported_modality": Reason("the row holds an image, sound or another part that is not text", "text only"),
    "tool_calls_unsupported": Reason("tool calls are malformed, or were asked to be refused", "allow or repair them"),
    # the prompt and its answers
    "missing_context": Reason("the row has no prompt", "add the conversation that was answered"),
    "empty_prompt": Reason("the prompt holds no text", "add the text that was answered"),
    "no_user_turn": Reason("nobody speaks as user in the prompt", "add the user's turn"),
    "context_not_ending_with_user": Reason(
        "the prompt does not end with a user or tool turn", "end it before the answer"
    ),
    "no_prompt_boundary": Reason("plain texts without a prompt", "give the prompt in a field of its own"),
    "prompt_mismatch": Reason("the two sides answer different prompts", "compare answers to one prompt only"),
    "empty_chosen": Reason("the chosen answer is empty", "nothing to learn from it; leave the row out"),
    "empty_rejected": Reason("the rejected answer is empty", "nothing to learn from it; leave the row out"),
    "empty_response": Reason("the judged answer is empty", "nothing to learn from it; leave the row out"),
    "identical": Reason("both sides have the same text", "nothing to prefer; leave the row out"),
    "too_long": Reason("the row is longer than the limit", "shorten it or raise the limit of characters"),
    # what the reviewers said, taken together
    "tie": Reason("neither side is preferred", "ask for a preference"),
    "no_majority": Reason("the reviewers are split evenly", "ask one more reviewer"),
    "outvoted": Reason("most reviewers judged the other way", "nothing; the majority's pair is used"),
    "contradiction": Reason("the same reviewer judged both ways", "take one of the judgements back with an undo"),
    "preference_cycle": Reason("the preferences of this prompt run in a circle", "undo the preference that is wrong"),
    "merged_vote": Reason("agrees with a pair that is already kept", "nothing; it counts in the pair's weight"),
    "duplicate": Reason("the same row occurs twice in one import", "nothing; it counts once"),
    "unpaired": Reason("no opposite decision on the same prompt", "judge a second answer to this prompt"),
    "prompt_cap": Reason("the prompt already has as many pairs as allowed", "raise the cap of pairs per prompt"),
    "undone": Reason("taken back by an undo event", "nothing"),
    "undo_event": Reason("takes back another event", "nothing"),
    "sample_data": Reason("sample data, left out because other feedback exists", "nothing"),
}


class RowRejected(Exception):  # noqa: N818 - the row is refused; the import goes on
    """A row that is refused. `reason` is a code of `REASONS`, `field` names the offending field."""

    def __init__(self, reason: str, field: str | None = None, detail: str = "") -> None:
        super().__init__(reason, field, detail)
        self.reason = reason
        self.field = field
        self.detail = detail

    def __str__(self) -> str:
        known = REASONS[self.reason]
        where = f" in field {self.field}" if self.field else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.reason}{where}: {known.explanation}{detail}. Remedy: {known.remedy}."

    def with_field_names(self, names: dict[str, str]) -> RowRejected:
        """The same refusal with the head of its field replaced, so that it names the field of the file."""
        if not self.field:
            return self
        head, separator, tail = self.field.partition("[")
        return RowRejected(self.reason, names.get(head, head) + separator + tail, self.detail)
