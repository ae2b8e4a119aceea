"""Pages of a log: complete, in order, clean, and read in time that depends on the page and not on the log."""

from __future__ import annotations

import threading
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_rl_dagster.nemo_rl.log_parser import clean
from nvtrader_rl_dagster.nemo_rl.run_log import LogLine, LogPage, tail

TS = "2026-01-01T00:00:00.000Z"


def row(n: int, text: str = "") -> bytes:
    return orjson.dumps({"n": n, "ts": TS, "text": text}) + b"\n"


def write_log(path: Path, texts: list[str], half: bytes = b"") -> Path:
    path.write_bytes(b"".join(row(n, text) for n, text in enumerate(texts, 1)) + half)
    return path


def read_through(path: Path, max_lines: int) -> list[LogLine]:
    lines: list[LogLine] = []
    page = LogPage([], 0, 0)
    while True:
        page = tail(path, page.next_line, max_lines)
        if not page.lines:
            return lines
        assert len(page.lines) <= max_lines
        lines += page.lines


SIZES = st.sampled_from([0, 1, 30, 500, 8_000, 70_000, 1_000_000])


@settings(max_examples=40, deadline=None)
@given(st.lists(SIZES, max_size=60), st.integers(1, 25), st.sampled_from([b"", b"{", b'{"n":99,"ts":"', b"x" * 20_000]))
def test_paging_through_gives_every_complete_line_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_lines: int, half: bytes
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    # At most four large lines, so that an example stays small.
    large = 0
    for i, size in enumerate(sizes):
        large += size > 10_000
        sizes[i] = size if large <= 4 else size % 10_000
    texts = [f"{i} " + "x" * size for i, size in enumerate(sizes)]
    write_log(path, texts, half)
    assert read_through(path, max_lines) == [LogLine(n, TS, text) for n, text in enumerate(texts, 1)]
    last = tail(path, None, max_lines)
    assert [line.n for line in last.lines] == list(range(max(0, len(texts) - max_lines) + 1, len(texts) + 1))
    assert last.total == last.next_line == len(texts)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 3_000), min_size=1, max_size=200),
    st.integers(0, 250),
    st.integers(0, 50),
)
def test_a_page_holds_exactly_the_lines_after_the_given_one(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], since: int, max_lines: int
) -> None:
    path = write_log(tmp_path_factory.mktemp("log") / "log.jsonl", ["x" * size for size in sizes])
    page = tail(path, since, max_lines)
    total = len(sizes)
    first = min(since, total)
    assert [line.n for line in page.lines] == list(range(first + 1, min(first + max_lines, total) + 1))
    assert (page.next_line, page.total) == (first + len(page.lines), total)


@pytest.mark.parametrize(("where", "sizes"), [("first", [1_000_000] + [5] * 99), ("all", [1_000_000] * 12)])
def test_lines_of_a_megabyte_do_not_hide_their_neighbours(tmp_path: Path, where: str, sizes: list[int]) -> None:
    path = write_log(tmp_path / "log.jsonl", ["x" * size for size in sizes])
    for since in range(len(sizes)):
        (line,) = tail(path, since, 1).lines
        assert (line.n, len(line.text)) == (since + 1, sizes[since])


def bytes_read() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def test_a_page_of_a_large_log_reads_little_more_than_the_page(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.jsonl", [f"line {n} " + "." * 40 for n in range(200_000)])
    for since in (0, 7, 100_000, 150_001, 199_990, 10**12, None):
        before = bytes_read()
        page = tail(path, since, 200)
        assert bytes_read() - before < 400_000, since  # the file has 19 MB
        assert len(page.lines) == (200 if since in (0, 7, 100_000, 150_001, None) else 10 if since == 199_990 else 0)


def test_a_half_written_last_line_is_left_for_the_next_read(tmp_path: Path) -> None:
    whole = row(3, "third")
    path = write_log(tmp_path / "log.jsonl", ["a", "b"], half=whole[:-1])
    page = tail(path, 1)
    assert [line.text for line in page.lines] == ["b"] and (page.next_line, page.total) == (2, 2)
    write_log(path, ["a", "b"], half=whole)
    assert tail(path, page.next_line).lines == [LogLine(3, TS, "third")]


@pytest.mark.parametrize("content", [None, b"", b'{"n":1,"ts'])
def test_a_log_without_a_complete_line_is_an_empty_page(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "log.jsonl"
    if content is not None:
        path.write_bytes(content)
    for since in (None, 0, 5):
        assert tail(path, since) == LogPage([], 0, 0)


def test_behind_the_end_there_is_nothing_and_the_next_call_starts_at_the_end(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.jsonl", ["a", "b"])
    assert tail(path, 10**15) == LogPage([], 2, 2)


@pytest.mark.parametrize(("since", "max_lines", "message"), [(-1, 5, "since_line=-1"), (0, -1, "max_lines=-1")])
def test_negative_arguments_are_refused_by_name(tmp_path: Path, since: int, max_lines: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tail(write_log(tmp_path / "log.jsonl", ["a"]), since, max_lines)


def test_a_page_of_no_lines_still_says_where_the_log_ends(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.jsonl", ["a", "b", "c"])
    assert tail(path, None, 0) == LogPage([], 3, 3) and tail(path, 1, 0) == LogPage([], 1, 3)


def test_lines_lost_on_a_full_disk_leave_a_gap_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    numbers = [*range(1, 500), *range(900, 1500)]
    path.write_bytes(b"".join(row(n, "x" * 50) for n in numbers))
    assert [line.n for line in read_through(path, 70)] == numbers
    assert [line.n for line in tail(path, 600, 2).lines] == [900, 901]


@pytest.mark.parametrize("broken", [b"not json\n", b'{"n":2,"ts":"t"}\n', b'{"n":2,"ts":"t","text":5}\n', b"[2]\n"])
def test_a_damaged_line_is_named(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(row(1) + broken + row(3))
    with pytest.raises(ValueError, match=rf"log\.jsonl: the line at byte {len(row(1))} .*damaged"):
        tail(path, 0)


CLEANED = [
    ("Generating: 10%|█ |\rGenerating: 100%|██|\n", "Generating: 100%|██|"),
    ("\x1b[34mINFO\x1b[0m x\x1b[A", "INFO x"),
    ("\x1b]0;title\x07text", "text"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("100%\r", "100%"),
    ("10%\r100%\r\x1b[K\n", "100%"),
    ("\r 50%|█ |\x1b[A\r100%|██|\x1b[A\r\n", "100%|██|"),
    ("\x1b[38:5:1;2mred\x1b[>4;1m\x1b(B.\x1b=\x1b7", "red."),
    ("cut off \x1b[3", "cut off "),
    ("\x1b]0;cut off", ""),
    ("bell\x07 and tab\t.", "bell and tab\t."),
    ("\u009b31mИсправно 正常 é\u009b0m", "Исправно 正常 é"),
]


def test_a_page_shows_what_a_terminal_would_and_the_file_keeps_what_was_written(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.jsonl", [raw for raw, _ in CLEANED])
    before = path.read_bytes()
    assert [line.text for line in tail(path).lines] == [text for _, text in CLEANED]
    assert path.read_bytes() == before and b"\\u001b[34mINFO" in before


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=60))
def test_no_control_character_survives_but_tab_and_line_feed(raw: str) -> None:
    shown = clean(raw)
    assert not [c for c in shown if (ord(c) < 32 or 127 <= ord(c) < 160) and c not in "\t\n"]
    assert clean(shown) == shown.rstrip("\n")


def test_a_follower_sees_every_line_once_while_the_log_grows(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    wanted = 3_000

    def write() -> None:
        with path.open("wb", buffering=0) as log:
            for n in range(1, wanted + 1):
                line = row(n, "x" * (n % 97))
                log.write(line[: n % len(line)])  # torn, as a reader may find it
                log.write(line[n % len(line) :])

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    since = 0
    while since < wanted:
        page = tail(path, since, 64)
        seen += [line.n for line in page.lines]
        since = page.next_line
    writer.join()
    assert seen == list(range(1, wanted + 1))


def test_a_page_never_mixes_a_log_with_the_one_that_replaces_it(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.jsonl", ["a"] * 2_000)
    over = threading.Event()

    def replace() -> None:
        while not over.is_set():
            for text, count in (("b" * 90, 700), ("a", 2_000)):
                write_log(tmp_path / "new", [text] * count).replace(path)

    writer = threading.Thread(target=replace)
    writer.start()
    totals = set()
    try:
        for i in range(400):
            page = tail(path, i * 5, 50)
            totals.add(page.total)
            assert len({line.text for line in page.lines}) <= 1
            assert page.total in (700, 2_000)
    finally:
        over.set()
        writer.join()
    assert totals == {700, 2_000}
