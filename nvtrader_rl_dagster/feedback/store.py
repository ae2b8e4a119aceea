"""The append-only feedback store: SQLAlchemy Core on SQLite (WAL) or PostgreSQL. Nothing is ever edited."""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from nvtrader_rl_dagster.feedback.events import FeedbackEvent, StoredEvent, now, prompt_hash
from nvtrader_rl_dagster.feedback.store_tables import create_tables, events, meta, set_aside_rows

BATCH = 2000
RAW_LIMIT = 64_000
_EVENT_COLUMNS = (
    "event_id", "kind", "source", "agent", "reviewer", "ts", "prompt_hash", "target", "payload",
)  # fmt: skip
_SET_ASIDE_COLUMNS = ("row_id", "file", "line", "field", "reason", "detail", "raw", "first_seen")
# Ids and hashes come in random order, so that a large import dirties many index pages: a 32 MB cache and a
# checkpoint every 40 MB write each of them less often.
_SQLITE_BULK = ("cache_size=-32000", "wal_autocheckpoint=10000")
_DETAIL_LIMIT = 1000
_IDS_PER_QUERY = 500


class SetAsideRow(NamedTuple):
    """A row that an importer refused.

    raw: its text, cut at 64 kB. number: its place among the file's rows; part: which of the row's decisions.
    """

    file: str
    line: int
    field: str | None
    reason: str
    detail: str
    raw: str
    number: int = 0
    part: int = 0


class Appended(NamedTuple):
    """new: how many events were new. seqs, prompt_hashes: of every event of the batch, new or not."""

    new: int
    seqs: list[int]
    prompt_hashes: list[str]


class FeedbackStore:
    """A feedback store by SQLAlchemy URL: `sqlite:///path` or `postgresql+psycopg://...`.

    Many processes may write at once. Raises ValueError for another database.
    """

    def __init__(self, url: str | URL) -> None:
        self.url = sa.make_url(url)
        self._engine = _engine(self.url)
        file = _sqlite_file(self.url)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
        create_tables(self._engine)
        with self._writing(meta) as connection:
            self._insert(connection, meta, ("key", "value"), [("ledger_id", str(uuid.uuid4()))])
        self.ledger_id: str = self._ledger_id() or ""

    @classmethod
    def existing(cls, url: str | URL) -> FeedbackStore | None:
        """The store, opened without a write, so without waiting for a writer; None where nothing was stored yet."""
        parsed = sa.make_url(url)
        file = _sqlite_file(parsed)
        if file is not None and not file.is_file():
            return None
        store = cls.__new__(cls)
        store.url, store._engine = parsed, _engine(parsed)
        ledger_id = store._ledger_id() if sa.inspect(store._engine).has_table(meta.name) else None
        if ledger_id is None:
            store.close()
            return None
        store.ledger_id = ledger_id
        return store

    def close(self) -> None:
        self._engine.dispose()

    def append(self, new: Iterable[FeedbackEvent]) -> int:
        """Append events; those whose event_id is already stored change nothing. Returns how many were new."""
        return sum(self.append_batch(batch).new for batch in _batches(new))

    def append_batch(self, batch: Sequence[FeedbackEvent]) -> Appended:
        """Append events in one transaction and say where each of them is stored."""
        if not batch:
            return Appended(0, [], [])
        hashes = [prompt_hash(event.prompt) if event.prompt else "" for event in batch]
        rows = [_event_row(event, key) for event, key in zip(batch, hashes, strict=True)]
        with self._writing(events) as connection:
            new = self._insert(connection, events, _EVENT_COLUMNS, rows)
            if new == len(batch):
                # One writer at a time: the new numbers follow each other.
                last = connection.scalar(sa.select(sa.func.max(events.c.seq))) or 0
                return Appended(new, list(range(last - new + 1, last + 1)), hashes)
        seq_of = self._seqs({event.event_id for event in batch})
        return Appended(new, [seq_of[event.event_id] for event in batch], hashes)

    def append_set_aside(self, rows: Iterable[SetAsideRow]) -> int:
        """Record refused rows; the same row of the same file is recorded once. Returns how many were new."""
        added = 0
        for batch in _batches(rows):
            records = [_set_aside_record(row) for row in batch]
            with self._writing(set_aside_rows) as connection:
                added += self._insert(connection, set_aside_rows, _SET_ASIDE_COLUMNS, records)
        return added

    def last_seq(self) -> int:
        """The highest sequence number, 0 when the store is empty."""
        with self._engine.connect() as connection:
            return connection.scalar(sa.select(sa.func.max(events.c.seq))) or 0

    def counts(self) -> dict[str, Any]:
        """`{"events", "by_kind", "by_source", "set_aside_rows"}`."""
        with self._engine.connect() as connection:
            grouped = connection.execute(
                sa.select(events.c.kind, events.c.source, sa.func.count()).group_by(events.c.kind, events.c.source)
            ).all()
            refused = connection.scalar(sa.select(sa.func.count()).select_from(set_aside_rows)) or 0
        by_kind: dict[str, int] = {}
        by_source: dict[str, int] = {}
        for kind, source, count in grouped:
            by_kind[kind] = by_kind.get(kind, 0) + count
            by_source[source] = by_source.get(source, 0) + count
        return {
            "events": sum(by_kind.values()),
            "by_kind": dict(sorted(by_kind.items())),
            "by_source": dict(sorted(by_source.items())),
            "set_aside_rows": refused,
        }

    def iter_events(self, after_seq: int = 0, through_seq: int | None = None) -> Iterator[StoredEvent]:
        """Events with after_seq < seq <= through_seq in order of seq, streamed."""
        query = _select_events(through_seq).where(events.c.seq > after_seq).order_by(events.c.seq)
        yield from map(_stored, self._stream(query))

    def iter_undos(self, through_seq: int | None = None) -> Iterator[StoredEvent]:
        """The undo events in order of seq, streamed."""
        query = _select_events(through_seq).where(events.c.target.is_not(None)).order_by(events.c.seq)
        yield from map(_stored, self._stream(query))

    def iter_prompt_groups(
        self, through_seq: int | None = None, *, prompts: Collection[str] | None = None
    ) -> Iterator[list[StoredEvent]]:
        """Preference and decision events, one list per prompt in order of (prompt_hash, seq).

        The database does the sort, so memory holds the events of one prompt. `prompts`: only these hashes.
        """
        query = _select_events(through_seq).where(events.c.kind != "undo")
        ordered = query.order_by(events.c.prompt_hash, events.c.seq)
        if prompts is None:
            rows: Iterator[Any] = self._stream(ordered)
        else:
            rows = itertools.chain.from_iterable(
                self._stream(ordered.where(events.c.prompt_hash.in_(part)))
                for part in _batches(sorted(set(prompts)), _IDS_PER_QUERY)
            )
        for _, group in itertools.groupby(map(_stored, rows), key=lambda item: item.prompt_hash):
            yield list(group)

    def iter_set_aside(self) -> Iterator[dict[str, Any]]:
        """Refused rows as `{"file", "line", "field", "reason", "detail", "raw"}` in order of file and line."""
        names = ("file", "line", "field", "reason", "detail", "raw")
        order = (set_aside_rows.c.file, set_aside_rows.c.line, set_aside_rows.c.row_id)
        for row in self._stream(sa.select(*(set_aside_rows.c[name] for name in names)).order_by(*order)):
            yield dict(zip(names, row, strict=True))

    def events_of(self, event_ids: Iterable[str]) -> dict[str, FeedbackEvent]:
        """The stored event of each id that is stored."""
        found: dict[str, FeedbackEvent] = {}
        with self._engine.connect() as connection:
            for part in _batches(event_ids, _IDS_PER_QUERY):
                query = sa.select(events.c.event_id, events.c.payload).where(events.c.event_id.in_(part))
                found.update((key, FeedbackEvent.from_stored(text)) for key, text in connection.execute(query))
        return found

    def holds_other_source(self, source: str, through_seq: int | None = None) -> bool:
        """Whether any event comes from another source than `source`."""
        query = sa.select(events.c.seq).where(events.c.source != source).limit(1)
        if through_seq is not None:
            query = query.where(events.c.seq <= through_seq)
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def touched_prompts(self, after_seq: int, through_seq: int) -> set[str]:
        """Hashes of the prompts that the events with after_seq < seq <= through_seq judge or take a judgement back of.

        An undo whose target is stored later touches nothing: the target itself will.
        """
        target = events.alias("target")
        between = sa.and_(events.c.seq > after_seq, events.c.seq <= through_seq)
        judged = sa.select(events.c.prompt_hash).where(between, events.c.kind != "undo")
        taken_back = sa.select(target.c.prompt_hash).where(
            between, events.c.target.is_not(None), target.c.event_id == events.c.target,
            target.c.kind != "undo", target.c.seq <= through_seq,
        )  # fmt: skip
        with self._engine.connect() as connection:
            return {*connection.scalars(judged), *connection.scalars(taken_back)}

    def _seqs(self, event_ids: Iterable[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        with self._engine.connect() as connection:
            for part in _batches(event_ids, _IDS_PER_QUERY):
                query = sa.select(events.c.event_id, events.c.seq).where(events.c.event_id.in_(part))
                found.update((event_id, seq) for event_id, seq in connection.execute(query))
        return found

    @contextmanager
    def _writing(self, table: sa.Table) -> Iterator[Connection]:
        """A transaction whose first statement must be the INSERT.

        A read before it would make SQLite fail with a stale snapshot instead of waiting for the other writer. On
        PostgreSQL writers take turns, so that seq order is commit order and no reader skips a late, lower seq.
        """
        with self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(sa.text(f"LOCK TABLE {table.name} IN EXCLUSIVE MODE"))
            yield connection

    def _insert(
        self, connection: Connection, table: sa.Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Insert the rows whose key does not exist yet; returns how many.

        The statement goes to the driver as it is: SQLAlchemy's handling of each row costs more than the insert.
        """
        mark = "?" if self._engine.dialect.name == "sqlite" else "%s"
        marks = ", ".join([mark] * len(columns))
        statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        return connection.exec_driver_sql(statement, list(rows)).rowcount

    def _ledger_id(self) -> str | None:
        with self._engine.connect() as connection:
            return connection.scalar(sa.select(meta.c.value).where(meta.c.key == "ledger_id"))

    def _stream(self, query: sa.Select[Any]) -> Iterator[Any]:
        with self._engine.connect() as connection:
            yield from connection.execution_options(yield_per=500).execute(query)


def _sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite store. None for another database; raises ValueError for a store in memory."""
    if url.get_backend_name() != "sqlite":
        return None
    if not url.database or url.database == ":memory:":
        raise ValueError("the feedback store needs a file: sqlite:///path/to/feedback.db")
    return Path(url.database)


def _engine(url: URL) -> Engine:
    """Connects only when it is used."""
    if _sqlite_file(url) is not None:
        return _sqlite_engine(url)
    if url.get_backend_name() == "postgresql":
        return sa.create_engine(url, hide_parameters=True)
    raise ValueError(f"unsupported feedback store {url.get_backend_name()!r}: use sqlite or postgresql")


def _sqlite_engine(url: URL) -> Engine:
    engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": 30, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=NORMAL", *_SQLITE_BULK):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _select_events(through_seq: int | None) -> sa.Select[Any]:
    takes_back = events.alias("takes_back")
    undone = sa.select(takes_back.c.seq).where(takes_back.c.target == events.c.event_id, takes_back.c.kind == "undo")
    if through_seq is not None:
        undone = undone.where(takes_back.c.seq <= through_seq)
    query = sa.select(events.c.seq, events.c.payload, events.c.prompt_hash, sa.exists(undone).label("undone"))
    return query if through_seq is None else query.where(events.c.seq <= through_seq)


def _stored(row: Any) -> StoredEvent:
    seq, payload, key, undone = row
    return StoredEvent(seq, FeedbackEvent.from_stored(payload), key, bool(undone))


def _event_row(event: FeedbackEvent, key: str) -> tuple[str | None, ...]:
    """The values of `_EVENT_COLUMNS`."""
    payload = orjson.dumps(event.to_dict()).decode()
    return (
        event.event_id, event.kind, event.source, event.agent, event.reviewer, event.ts, key, event.target, payload,
    )  # fmt: skip


def _set_aside_record(row: SetAsideRow) -> tuple[Any, ...]:
    """The values of `_SET_ASIDE_COLUMNS`."""
    identity = f"{row.file}\0{row.line}\0{row.number}\0{row.part}\0".encode(errors="surrogatepass")
    raw = row.raw.encode(errors="surrogatepass")
    return (
        hashlib.sha256(identity + raw).hexdigest(),
        _plain(row.file),
        row.line,
        None if row.field is None else _plain(row.field[:300]),
        row.reason,
        _plain(row.detail[:_DETAIL_LIMIT]),
        _plain(row.raw[:RAW_LIMIT]),
        now(),
    )


def _plain(text: str) -> str:
    """Text that every database takes: no NUL, no lone surrogates; both become visible escapes."""
    return text.encode(errors="backslashreplace").decode().replace("\x00", "\\x00")


def _batches(items: Iterable[Any], size: int = BATCH) -> Iterator[list[Any]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
