"""The NeMo-RL releases whose configuration and output this project knows."""

from __future__ import annotations

import re
from pathlib import Path

SUPPORTED = ("0.6.0", "0.7.0")
DEFAULT_VERSION = "0.6.0"

_PART = re.compile(r"^(MAJOR|MINOR|PATCH)\s*=\s*(\d+)\s*$", re.MULTILINE)


def version_of(tree: Path) -> str:
    """The supported release that a NeMo-RL source tree follows; a commit after 0.6.0 that calls itself 0.6 is 0.6.0.

    Reads `nemo_rl/package_info.py` as text. Raises `ValueError` naming the file for another version or no tree.
    """
    file = tree / "nemo_rl" / "package_info.py"
    try:
        parts = dict(_PART.findall(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{file} cannot be read ({error}); point NVTRADER_NEMORL_SRC at a NeMo-RL checkout, "
            f"for example one of v{DEFAULT_VERSION}"
        ) from error
    for version in SUPPORTED:
        if (parts.get("MAJOR"), parts.get("MINOR")) == tuple(version.split(".")[:2]):
            return version
    found = ".".join(parts.get(name, "?") for name in ("MAJOR", "MINOR", "PATCH"))
    raise ValueError(f"{file} says NeMo-RL {found}; supported are {', '.join(SUPPORTED)}: check out one of their tags")
