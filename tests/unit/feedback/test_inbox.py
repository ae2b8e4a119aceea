"""The inbox with real files, real writers and real kills: complete files are imported once, the rest is left alone."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from feedback_rows import lines, pair_texts, trl_row

from nvtrader_rl_dagster.feedback import inbox as inbox_module
from nvtrader_rl_dagster.feedback.events import FeedbackEvent
from nvtrader_rl_dagster.feedback.inbox import DroppedFile, FileOutcome, import_file, read_inbox
from nvtrader_rl_dagster.feedback.store import Appended, FeedbackStore

APPENDS_SLOWLY = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as out:
    out.write(b'{"prompt": "q0", "chosen": "good", "rejected": "bad"}\\n')
    print("open", flush=True)
    sys.stdin.readline()
    out.write(b'{"prompt": "q1", "chosen": "good", ')
    print("half", flush=True)
    sys.stdin.readline()
    out.write(b'"rejected": "bad"}\\n')
"""
IMPORTS_ALL = """
import sys
from pathlib import Path
from nvtrader_rl_dagster.feedback.inbox import import_file, read_inbox
from nvtrader_rl_dagster.feedback.store import FeedbackStore
store, files = FeedbackStore(sys.argv[1]), read_inbox(Path(sys.argv[2]), 0).ready
print("ready", flush=True)
sys.stdin.readline()
outcomes = [import_file(store, file) for file in files]
print(sum(o.report.events for o in outcomes if o), sum(o is not None for o in outcomes))
"""
IS_KILLED_BEFORE_THE_MOVE = """
import os, signal, sys
from pathlib import Path
from nvtrader_rl_dagster.feedback import inbox
from nvtrader_rl_dagster.feedback.store import FeedbackStore
inbox.shutil.move = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
(file,) = inbox.read_inbox(Path(sys.argv[2]), 0).ready
inbox.import_file(FeedbackStore(sys.argv[1]), file)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "inbox"
    made.mkdir()
    return made


def drop(folder: Path, name: str = "rows.jsonl", data: bytes | None = None) -> Path:
    path = folder / name
    path.write_bytes(lines(trl_row(0), trl_row(1)) if data is None else data)
    return path


def import_one(store: FeedbackStore, folder: Path) -> FileOutcome:
    (file,) = read_inbox(folder, 0).ready
    outcome = import_file(store, file)
    assert outcome is not None
    return outcome


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != ".lock")


@contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_missing_inbox_is_nothing_to_do(tmp_path: Path) -> None:
    inbox = read_inbox(tmp_path / "nowhere", 0)
    assert inbox.ready == [] and inbox.waiting == [] and not (tmp_path / "nowhere").exists()


def test_a_file_is_imported_once_and_moved(store: FeedbackStore, folder: Path) -> None:
    drop(folder)
    outcome = import_one(store, folder)
    assert outcome.error == "" and outcome.report is not None
    assert (outcome.report.events, outcome.report.usable_pairs) == (2, 2)
    assert outcome.moved_to == folder / "imported" / "rows.jsonl"
    assert names(folder) == ["imported/rows.jsonl"] and read_inbox(folder, 0).ready == []


def test_the_same_content_under_another_name_adds_no_event(store: FeedbackStore, folder: Path) -> None:
    drop(folder)
    import_one(store, folder)
    drop(folder, "again.jsonl")
    report = import_one(store, folder).report
    assert report is not None and (report.events, report.already_stored, report.usable_pairs) == (0, 2, 2)
    assert store.last_seq() == 2 and names(folder) == ["imported/again.jsonl", "imported/rows.jsonl"]


@pytest.mark.parametrize(
    ("name", "second"),
    [("rows.jsonl", "rows-2.jsonl"), ("a.b.jsonl.GZ", "a.b-2.jsonl.GZ"), ("2024.01 desk.csv", "2024.01 desk-2.csv")],
)
def test_a_taken_name_gets_a_number_and_nothing_is_overwritten(
    store: FeedbackStore, folder: Path, name: str, second: str
) -> None:
    for answer in ("one", "two", "three"):
        csv = f"prompt,chosen,rejected\nq,{answer},b\n".encode()
        drop(folder, name, csv if "csv" in name else lines(trl_row(0, chosen=answer)))
        import_one(store, folder)
    assert names(folder) == sorted([f"imported/{name}", f"imported/{second}", f"imported/{second.replace('-2', '-3')}"])
    assert b"one" in (folder / "imported" / name).read_bytes()


def test_rows_that_cannot_be_used_are_set_aside_and_the_file_counts_as_imported(
    store: FeedbackStore, folder: Path
) -> None:
    drop(folder, data=lines(trl_row(0), trl_row(1, chosen="")) + b'{"prompt": "q2", "cho')
    outcome = import_one(store, folder)
    assert outcome.error == "" and outcome.moved_to.parent.name == "imported"
    assert {row["reason"] for row in store.iter_set_aside()} == {"empty_chosen", "truncated_json"}


TORN = gzip.compress(lines(trl_row(0)), mtime=0)[:9]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("notes.docx", b"PK", ["file: notes.docx", "unknown kind of file", "remedy: rename the file, or convert it"]),
        ("empty.jsonl", b"", ["file: empty.jsonl", "line: -", "no_rows", "remedy: check that the right file"]),
        ("cut.jsonl", b'{"prompt": "q', ["line: 1", "truncated_json", "remedy: write the file again"]),
        ("head.csv", b"prompt,prompt\na,b\n", ["line: 1", "duplicate_key", "remedy: keep one of the two"]),
        ("torn.jsonl.gz", TORN, ["truncated_gzip", "copy or download the file again"]),
        ("not.parquet", b"PAR1 no", ["unreadable_file", "remedy: check the file's format"]),
    ],
)
def test_a_file_that_cannot_be_read_at_all_goes_to_failed_and_says_why(
    store: FeedbackStore, folder: Path, name: str, data: bytes, said: list[str]
) -> None:
    drop(folder, name, data)
    outcome = import_one(store, folder)
    assert outcome.error and names(folder) == [f"failed/{name}", f"failed/{name}.error.txt"]
    assert (folder / "failed" / name).read_bytes() == data
    text = (folder / "failed" / f"{name}.error.txt").read_text()
    for part in [*said, f"move it back to {folder}", "field: -"]:
        assert part in text
    assert store.last_seq() == 0


def test_a_repaired_file_is_imported_when_it_is_moved_back_with_its_error_text(
    store: FeedbackStore, folder: Path
) -> None:
    drop(folder, data=b'{"prompt": "q')
    import_one(store, folder)
    for path in list((folder / "failed").iterdir()):
        path.rename(folder / path.name)
    drop(folder)
    assert [name for name, _ in read_inbox(folder, 0).waiting] == ["rows.jsonl.error.txt"]
    assert import_one(store, folder).error == ""
    assert names(folder) == ["imported/rows.jsonl", "rows.jsonl.error.txt"]


def test_unfinished_names_folders_pipes_and_broken_links_wait_and_hidden_files_are_passed_over(folder: Path) -> None:
    for name in ("a.jsonl.part", "B.CRDOWNLOAD", "c.tmp", "d.jsonl~", ".hidden.jsonl", "ready.jsonl"):
        drop(folder, name)
    for name in ("imported", "failed", "more"):
        (folder / name).mkdir()
        drop(folder / name)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "link.jsonl").symlink_to("nowhere.jsonl")
    inbox = read_inbox(folder, 0)
    assert [file.path.name for file in inbox.ready] == ["ready.jsonl"]
    waiting = dict(inbox.waiting)
    assert set(waiting) == {"a.jsonl.part", "B.CRDOWNLOAD", "c.tmp", "d.jsonl~", "more", "pipe.jsonl", "link.jsonl"}
    assert waiting["more"] == "a folder, which is not entered; move its files up"
    assert waiting["pipe.jsonl"] == "not a regular file" and "broken link" in waiting["link.jsonl"]


def test_a_file_waits_until_it_was_left_alone_for_the_settle_time(folder: Path) -> None:
    path, now = drop(folder), time.time()
    assert read_inbox(folder, 5).waiting == [("rows.jsonl", "still being written (changed a moment ago)")]
    os.utime(path, (now, now - 6))
    assert [file.path for file in read_inbox(folder, 5).ready] == [path]


def test_a_time_of_change_in_the_future_does_not_make_a_file_wait_for_it(folder: Path) -> None:
    path = drop(folder)
    os.utime(path, (time.time(), time.time() + 1e6))
    assert read_inbox(folder, 0.3).ready == []
    time.sleep(0.35)
    assert [file.path for file in read_inbox(folder, 0.3).ready] == [path]


def test_the_oldest_file_comes_first(folder: Path) -> None:
    for age, name in enumerate(["b.jsonl", "c.jsonl", "a.jsonl"]):
        os.utime(drop(folder, name), (0, 1000 - age))
    assert [file.path.name for file in read_inbox(folder).ready] == ["a.jsonl", "c.jsonl", "b.jsonl"]


def test_a_file_that_another_process_has_open_for_writing_is_left_alone_until_it_is_closed(
    store: FeedbackStore, folder: Path
) -> None:
    path = folder / "rows.jsonl"
    with child(APPENDS_SLOWLY, path) as writer:
        for state in ("open", "half"):
            assert says(writer) == state
            os.utime(path, (0, 0))  # the settle time alone would take it
            inbox = read_inbox(folder, 5)
            assert inbox.waiting == [("rows.jsonl", "still being written (open in another program)")]
            go_on(writer)
        assert writer.wait(10) == 0
    assert import_one(store, folder).error == ""
    assert pair_texts(store) == {("q0", "good", "bad"), ("q1", "good", "bad")}
    assert list(store.iter_set_aside()) == []


def test_a_reader_does_not_keep_a_file_waiting(folder: Path) -> None:
    path = drop(folder)
    with path.open("rb"):
        assert len(read_inbox(folder, 0).ready) == 1


def test_asking_the_kernel_survives_a_writer_that_comes_at_the_same_moment(folder: Path) -> None:
    """It would be killed by SIGIO within milliseconds if the lease did not ask for a harmless signal."""
    path = drop(folder)
    code = (
        "import sys\nfrom pathlib import Path\nfrom nvtrader_rl_dagster.feedback.inbox import read_inbox\n"
        "print('go', flush=True)\nwhile True: read_inbox(Path(sys.argv[1]), 0)\n"
    )
    with child(code, folder) as asking:
        assert says(asking) == "go"
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            os.close(os.open(path, os.O_WRONLY))
        assert asking.poll() is None


def test_where_the_kernel_gives_no_leases_the_settle_time_decides(folder: Path) -> None:
    mounts = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "90 22 0:51 / /mnt/desk\\040share rw shared:9 master:2 - cifs //desk/share rw\n"
    )
    assert inbox_module._filesystem(os.makedev(254, 0), mounts) == "ext4"
    assert inbox_module._filesystem(os.makedev(0, 51), mounts) in inbox_module._NO_LEASES
    assert inbox_module._filesystem(os.makedev(0, 52), mounts) == ""
    real = Path("/proc/self/mountinfo").read_text()
    assert inbox_module._filesystem(folder.stat().st_dev, real) not in {"", *inbox_module._NO_LEASES}


def test_a_kill_between_import_and_move_adds_nothing_the_second_time(store: FeedbackStore, folder: Path) -> None:
    drop(folder, data=lines(*(trl_row(n) for n in range(20)), trl_row(99, chosen="")))
    url = store.url.render_as_string()
    done = subprocess.run([sys.executable, "-c", IS_KILLED_BEFORE_THE_MOVE, url, str(folder)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert names(folder) == ["rows.jsonl"] and store.last_seq() == 20
    report = import_one(store, folder).report
    assert report is not None and (report.events, report.already_stored, report.usable_pairs) == (0, 20, 20)
    assert store.last_seq() == 20 and len(list(store.iter_set_aside())) == 1
    assert names(folder) == ["imported/rows.jsonl"]


def test_two_processes_at_once_import_every_file_once(store: FeedbackStore, folder: Path) -> None:
    for n in range(12):
        drop(folder, f"{n}.jsonl", lines(*(trl_row(100 * n + k) for k in range(30))))
    url = store.url.render_as_string()
    with child(IMPORTS_ALL, url, folder) as one, child(IMPORTS_ALL, url, folder) as two:
        assert says(one) == says(two) == "ready"  # both have seen all twelve
        go_on(one)
        go_on(two)
        counts = [list(map(int, says(process).split())) for process in (one, two)]
    assert sum(events for events, _ in counts) == store.last_seq() == 360
    assert sum(files for _, files in counts) == 12
    assert names(folder) == sorted(f"imported/{n}.jsonl" for n in range(12))


def test_a_file_that_was_replaced_since_it_was_seen_is_not_taken(store: FeedbackStore, folder: Path) -> None:
    path = drop(folder)
    (seen,) = read_inbox(folder, 0).ready
    drop(folder.parent, "new.jsonl").replace(path)
    assert import_file(store, seen) is None and path.exists() and store.last_seq() == 0
    assert import_one(store, folder).error == ""


def test_a_file_that_is_replaced_while_it_is_read_stays_and_is_imported_next(tmp_path: Path, folder: Path) -> None:
    path = drop(folder)

    class Replacing(FeedbackStore):
        def append_batch(self, batch: list[FeedbackEvent]) -> Appended:  # type: ignore[override]
            drop(tmp_path, "new.jsonl", lines(trl_row(7))).replace(path)
            return super().append_batch(batch)

    store = Replacing(f"sqlite:///{tmp_path / 'replacing.db'}")
    (seen,) = read_inbox(folder, 0).ready
    assert import_file(store, seen) is None and names(folder) == ["rows.jsonl"]
    store.close()
    store = FeedbackStore(f"sqlite:///{tmp_path / 'replacing.db'}")
    assert import_one(store, folder).error == ""
    assert pair_texts(store) == {("q0", "good", "bad"), ("q1", "good", "bad"), ("q7", "good", "bad")}
    store.close()


def test_a_file_that_is_gone_is_nobodys_error(store: FeedbackStore, folder: Path) -> None:
    drop(folder).unlink()
    assert import_file(store, DroppedFile(folder / "rows.jsonl", 1, 2, 3)) is None
    assert names(folder) == []


def test_names_of_any_bytes_and_any_length_never_block_the_inbox(store: FeedbackStore, folder: Path) -> None:
    long = "n" * 249 + ".jsonl"
    for _ in range(2):
        drop(folder, long)
        assert import_one(store, folder).moved_to.name.endswith(".jsonl")
        drop(folder, long, b"")
        assert import_one(store, folder).error
    drop(folder, os.fsdecode(b"caf\xe9.jsonl"))
    outcome = import_one(store, folder)
    assert outcome.name == "caf\\udce9.jsonl" and "not UTF-8; rename it" in outcome.error
    assert len(names(folder)) == 2 + 4 + 2


def test_the_fingerprint_follows_names_sizes_and_times_only(folder: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        os.utime(drop(folder, name), (0, 1000))
    before = read_inbox(folder).fingerprint
    drop(folder, "c.jsonl.part")
    assert read_inbox(folder).fingerprint == before and len(before) == 12
    os.utime(folder / "b.jsonl", (0, 1001))
    assert read_inbox(folder).fingerprint != before


def test_a_file_of_fifty_thousand_rows_is_imported_within_seconds(store: FeedbackStore, folder: Path) -> None:
    drop(folder, data=lines(*(trl_row(n) for n in range(50_000))))
    started = time.process_time()
    report = import_one(store, folder).report
    assert report is not None and (report.events, report.usable_pairs) == (50_000, 50_000)
    assert time.process_time() - started < 45  # 7 s on an idle core
