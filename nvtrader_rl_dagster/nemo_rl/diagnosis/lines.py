"""One line of a training's output: who printed it, and what it says without colours and prefixes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nvtrader_rl_dagster.nemo_rl.log_parser import clean

#: How Ray marks a line of a worker or of one of its daemons: `(DTensorPolicyWorker pid=13607) `, mostly in colour,
#: then also behind an unfinished progress bar.
_SOURCE = re.compile(
    r"\x1b\[[\d;]*m\((?P<coloured>[^()\x1b]*?pid=\d+[^()\x1b]*|raylet|autoscaler[^()]*|gcs_server)\)\x1b\[0m ?"
    r"|^\((?P<plain>[\w\[\]=.:<>, -]* ?pid=\d+(?:, ip=[\d.]+)?|raylet|autoscaler[^()]*|gcs_server)\) ?"
)
#: vLLM runs its engine in a process of its own below a worker, and its logger marks every line of a traceback.
_OF_VLLM = (
    re.compile(r"\(\w+ pid=\d+\) ?"),
    re.compile(r"(?:ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]+:\d+\] ?"),
)
_REPEATED = re.compile(r"(\x1b\[[\d;]*m)? \[repeated \d+x across (cluster|all nodes)\].*$")
#: What may stand before the message itself: time stamps, levels, file and line, and the branches of uv's tree.
_DECORATION = re.compile(
    r"(?:\s+|\[[^\]]*\]\s|\(\w+\)\s|[\w./-]+\.(?:cc|h|py|rs):\d+:\s|(?:error|ERROR|WARNING|Error|OSError|Caused by):\s"
    r"|[×├╰╭│┌└─▶╴·xX`>-]+\s|[1-9]\d*\s(?=Workers))*"
)
_LONGEST = 4000


@dataclass(frozen=True)
class Line:
    """n: its number in the log. source: empty for the driver. text: without colours and the mark of its source."""

    n: int
    source: str
    text: str

    @property
    def message(self) -> str:
        """The text without what a logger puts before it."""
        decoration = _DECORATION.match(self.text)
        return self.text[decoration.end() :] if decoration else self.text


def line_of(n: int, raw: str) -> Line:
    """The line as a terminal would show it, told from the mark of its source."""
    raw = raw[: 4 * _LONGEST]
    found = _SOURCE.search(raw)
    source = (found.group("coloured") or found.group("plain")) if found else ""
    text = clean(_REPEATED.sub("", raw[found.end() :] if found else raw))
    for mark in _OF_VLLM:
        if engine := mark.match(text):
            source, text = f"{source} vLLM", text[engine.end() :]
    return Line(n, source, text[:_LONGEST])
