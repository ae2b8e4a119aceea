"""The tables of the feedback store, and their creation by many processes at once."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.schema import CreateIndex, CreateTable

_metadata = sa.MetaData()
# SQLite gives AUTOINCREMENT only to a column of type INTEGER.
_seq = sa.BigInteger().with_variant(sa.Integer, "sqlite")

events = sa.Table(
    "events",
    _metadata,
    sa.Column("seq", _seq, primary_key=True, autoincrement=True),
    sa.Column("event_id", sa.Text, nullable=False, unique=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("agent", sa.Text),
    sa.Column("reviewer", sa.Text),
    sa.Column("ts", sa.Text, nullable=False),
    sa.Column("prompt_hash", sa.Text, nullable=False),
    sa.Column("target", sa.Text),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Index("events_by_prompt", "prompt_hash", "seq"),
    sqlite_autoincrement=True,
)
# Only undo events have a target.
sa.Index(
    "events_by_target",
    events.c.target,
    sqlite_where=events.c.target.is_not(None),
    postgresql_where=events.c.target.is_not(None),
)

set_aside_rows = sa.Table(
    "set_aside_rows",
    _metadata,
    sa.Column("row_id", sa.Text, primary_key=True),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("line", sa.BigInteger, nullable=False),
    sa.Column("field", sa.Text),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("raw", sa.Text, nullable=False),
    sa.Column("first_seen", sa.Text, nullable=False),
)

meta = sa.Table(
    "meta",
    _metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)


def create_tables(engine: Engine) -> None:
    """Create what is missing. Safe when several processes do it at the same moment."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            # CREATE TABLE IF NOT EXISTS is not safe against itself on PostgreSQL.
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x6E767472)))
        for table in _metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in sorted(table.indexes, key=lambda item: str(item.name)):
                connection.execute(CreateIndex(index, if_not_exists=True))
