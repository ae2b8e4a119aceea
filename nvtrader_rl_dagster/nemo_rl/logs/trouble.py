"""The exception that ended a driver, out of the traceback that Python prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b(?:\(\w+\))?(?::|$)")
_CHAIN = ("During handling of the above exception", "The above exception was")
#: Threads, destructors and the logger print a traceback too, and the driver goes on.
_HARMLESS = ("Exception ignored in", "Exception in thread", "--- Logging error")


@dataclass
class Trouble:
    """error: the last line of the newest traceback of the driver, None once it turned out to go on."""

    error: str | None = None
    _state: Literal["announced", "frames", "exception"] | None = None
    _harmless: bool = False

    @property
    def follows(self) -> bool:
        """Whether the next line may belong to a traceback, whatever it looks like."""
        return self._state is not None

    def begin(self, line: str) -> None:
        """A line that can matter; most are no trouble."""
        if line.startswith("Traceback ("):
            self._harmless = self._harmless and self._state == "announced"
            self._state = "frames"
        elif line.startswith(_HARMLESS):
            self._state, self._harmless = "announced", True

    def follow(self, line: str) -> None:
        """A line below the first one of a traceback."""
        if not line.strip() or line[0] in " \t":
            return
        if self._state == "frames" or (self._state == "exception" and _EXCEPTION.match(line)):
            # Ray prints its own exception first, then the worker's frames and exception.
            self._state = "exception"
            if not self._harmless:
                self.error = line.strip()
        elif self._state == "exception" and line.startswith(_CHAIN):
            self._state = "announced"
        else:
            self._state = None

    def over(self) -> None:
        """The driver goes on."""
        self.error = self._state = None
