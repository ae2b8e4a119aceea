"""However the bytes of a log arrive, and in whichever form, they say what its lines say one by one."""

from __future__ import annotations

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_rl_dagster.nemo_rl.log_parser import LogParser, Metric
from nvtrader_rl_dagster.nemo_rl.logs.lines import PLAIN, RUN_LOG, LineForm
from nvtrader_rl_dagster.nemo_rl.logs.report import LogStream
from tests import printed_logs as printed

PIECES = [
    *(printed.epoch(1, 2), printed.epoch(2, 2), printed.READY, printed.MAX_STEPS, printed.TIMEOUT),
    *(printed.header(1, 2), printed.header(2, 2), printed.saving(2), printed.saving(7), printed.timing(2.5, refit=1.0)),
    *(printed.results("loss: 0.5", "accuracy: nan"), printed.results("Loss: 0.25", "num valid samples: 0")),
    *(printed.validation(2, "Accuracy: 0.5", "Samples processed: 3"), printed.validation(0, "loss: 1", name="x y")),
    *(
        "  • sft_loss: 0.1\n",
        "• refit: 0.10s (1.0%)\n",
        "  • note: C:\\run\n",
        '  • "quoted": 1.0\n',
        "    • Critic LR: 1e-5",
    ),
    *("Removing checkpoint /c/step_2 due to being outside top-1\n", "📊 Using checkpoint directory: /c\n"),
    "\x1b[36m(W[rank=0] pid=3)\x1b[0m Saving tokenizer to /d/tmp_step_2/x\n",
    *("(W pid=3)   • loss: 9.0\n", "  • loss: 0.75(W pid=3) x\n", "│ • loss: 9 │\n", "(raylet) 📊 Training Results:\n"),
    *("Load: 1%|\rLoad: 100%|\r", "\x1b[1m", "\r\n", "\r", "\n", "\t", " ", "\\r", "\x1b[2K", "\x1b]0;title\x07"),
    *(
        "Traceback (most recent call last):\n  File x\n",
        "ValueError: x\n",
        "Exception ignored in: y\n",
        "--- Logging error ---\n",
    ),
    *("model_name='m' dataset_name='d'\n", "score=0.5000 (1.0/2)\n", "Generation sample buffer size: 1 is\n"),
    *("noise\n", "\x85\u2028", "\x00", "\ufffd", "Saving checkpoint for", "Training Results"),
]
LOGS = st.lists(st.sampled_from([*(piece.encode() for piece in PIECES), b"\xff", b"\xf0\x9f"]), max_size=30).map(
    b"".join
)


def state(parser: LogParser) -> tuple[object, ...]:
    return (
        *(parser.step, parser.steps_seen, parser.saved_steps, parser.removed, parser.checkpoint_directory, parser.end),
        *(parser.ready, parser.signs, parser.trouble.error, parser.count),
    )


def line_by_line(log: bytes) -> tuple[list[Metric], LogParser]:
    parser = LogParser(parts=True)
    metrics = [m for line in log.split(b"\n") for m in parser.feed(line.decode("utf-8", "replace"))]
    return metrics + parser.close(), parser


def scanned(log: bytes, form: LineForm) -> tuple[list[Metric], LogParser]:
    parser = LogParser(parts=True)
    return [m for found in parser.scan(log, form) for m in found] + parser.close(), parser


@settings(max_examples=400, deadline=None)
@given(LOGS)
def test_scanning_equals_reading_line_by_line(log: bytes) -> None:
    expected, parser = line_by_line(log)
    found, scanner = scanned(log, PLAIN)
    assert str(found) == str(expected) and state(scanner) == state(parser)
    rows = [{"n": n, "ts": "t", "text": line.decode("utf-8", "replace")} for n, line in enumerate(log.split(b"\n"), 1)]
    found, scanner = scanned(b"".join(orjson.dumps(row) + b"\n" for row in rows), RUN_LOG)
    assert str(found) == str(expected) and state(scanner) == state(parser)


@settings(max_examples=200, deadline=None)
@given(LOGS, st.lists(st.integers(0, 2000), max_size=8))
def test_the_size_of_the_pieces_does_not_matter(log: bytes, cuts: list[int]) -> None:
    whole, pieces = LogStream(), LogStream()
    whole.feed(log)
    at = 0
    for cut in [*sorted(cuts), len(log)]:
        pieces.feed(log[at:cut])
        at = max(at, min(cut, len(log)))
    for stream in (whole, pieces):
        stream.close()
    assert pieces.report() == whole.report() and state(pieces.parser) == state(whole.parser)


def test_pieces_of_one_byte_are_enough() -> None:
    log = (printed.epoch(1) + printed.step(1, 1, *printed.dpo_bullets(0.5)) + printed.MAX_STEPS).encode()
    stream = LogStream()
    for byte in log:
        stream.feed(bytes([byte]))
    stream.close()
    report = stream.report("dpo")
    assert report.steps[0]["metrics"]["loss"] == 0.5 and report.end == "max_steps"
