"""What kinds of values a data file holds, key by key: NeMo-RL's loader (Arrow) wants one kind for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_KINDS: dict[type, str] = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
#: Text that Arrow's JSON reader (21 and 23 tried) takes for a point in time when a whole column looks like it.
_TIME = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])([ T]\d{2}(:\d{2}(:\d{2})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?")


class Node:
    """All values that one key has had so far. line: where the first one stood."""

    __slots__ = ("all_times", "clash", "items", "keys", "kind", "line", "objects", "seen")

    def __init__(self) -> None:
        self.kind = ""
        self.line = 0
        self.clash: tuple[str, int] | None = None
        self.keys: dict[str, Node] = {}
        self.items: Node | None = None
        self.all_times = True
        self.objects = 0
        self.seen = 0

    def add(self, value: Any, line: int) -> int:
        """Take in a value; returns how many keys its objects have in all."""
        if value is None:
            return 0
        kind = _KINDS.get(type(value)) or type(value).__name__
        self.seen += 1
        if kind != self.kind:
            if not self.kind:
                self.kind, self.line = kind, line
            elif self.clash is None:
                self.clash = (kind, line)
        if kind == "text":
            if self.all_times and not _TIME.fullmatch(value):
                self.all_times = False
            return 0
        if kind == "object":
            self.objects += 1
            count = len(value)
            keys = self.keys
            for key, child in value.items():
                node = keys.get(key)
                if node is None:
                    node = keys[key] = Node()
                count += node.add(child, line)
            return count
        if kind == "list":
            if self.items is None:
                self.items = Node()
            count = 0
            for child in value:
                count += self.items.add(child, line)
            return count
        return 0

    def walk(self, path: str = "") -> Iterator[tuple[str, Node]]:
        """Every key below with its path, such as `context[].content`."""
        for key, child in self.keys.items():
            below = f"{path}.{key}" if path else key
            yield below, child
            yield from child.walk(below)
        if self.items is not None:
            yield f"{path}[]", self.items
            yield from self.items.walk(f"{path}[]")
