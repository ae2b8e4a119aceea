"""Takes secrets out of a configuration: by the name of a key, by the look of a value, by what the environment holds."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

REDACTED = "<redacted>"

_NAME = re.compile(
    r"TOKEN(?!IZ)|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|(^|_)(AUTH|PASS|PAT|PWD|JWT)(_|$)", re.IGNORECASE
)
#: Words of a configuration's key that mean a secret wherever they stand.
_ALWAYS = frozenset({"password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey"})
#: Configurations are full of `prompt_key` and `stop_token_ids`: only these are keys that open something.
_KEYS = re.compile(r"(^|_)(api|access|account|auth|encryption|license|private|secret|ssh)_?keys?$")
_TOKENS = re.compile(r"(^|_)(?<!bos_)(?<!eos_)(?<!pad_)(?<!unk_)(?<!sep_)(?<!cls_)(?<!mask_)(?<!stop_)token$")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
#: `NAME=value` inside a longer text. Templates are full of small names.
_ASSIGNMENT = re.compile(r"\b([A-Z][A-Z0-9_]*)=([^\s'\",;]+)")
_SHAPES = re.compile(
    r"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|nvapi-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
_USER_IN_URL = re.compile(r"(\w+://)[^/\s@]+@")
#: A shorter value (`true`, `0`, a name of a device) also stands where it is no secret.
_SHORTEST = 8


def is_secret_name(name: str) -> bool:
    """Whether an environment variable of this name holds a secret: *TOKEN*, *KEY*, *SECRET*, *PASSWORD* and such."""
    return bool(_NAME.search(name))


def secrets_in(environment: Mapping[str, Any]) -> set[str]:
    """Values of the secret-looking variables, long enough to be searched for. What names an existing file is none."""
    values = (str(value) for name, value in environment.items() if is_secret_name(name) and value is not None)
    return {value for value in values if len(value) >= _SHORTEST and not _is_path(value)}


def redact(config: Any, environment: Mapping[str, str] = os.environ) -> Any:
    """A copy of a configuration without secrets; everything else is unchanged.

    `env_vars` mappings become null: NeMo-RL writes the whole environment of a run into one that is not. The values of
    their secret-looking variables, and of those of `environment`, are searched for in every text.
    """
    known = secrets_in(environment)
    for mapping in _env_vars(config):
        known |= secrets_in(mapping)
    # The longest first: one secret may be the beginning of another.
    return _redacted(config, sorted(known, key=len, reverse=True))


def redact_file(file: Path) -> bool:
    """Redact a YAML file in place, atomically; whether that changed it.

    A file that is no YAML (a save that was killed) is emptied: it may hold secrets and is of use to nobody.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError:
        _replace(file, "# This file was cut off; it was emptied because it may have held secrets.\n")
        return True
    clean = redact(config)
    if clean == config:
        return False
    _replace(file, yaml.safe_dump(clean))
    return True


def _redacted(value: Any, known: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _entry(str(key), entry, known) for key, entry in value.items()}
    if isinstance(value, list):
        return [_redacted(entry, known) for entry in value]
    return _text(value, known) if isinstance(value, str) else value


def _entry(key: str, value: Any, known: list[str]) -> Any:
    if key == "env_vars" and isinstance(value, Mapping):
        return None
    if value is None or isinstance(value, bool) or not _is_secret_key(key):
        return _redacted(value, known)
    return REDACTED


def _is_secret_key(key: str) -> bool:
    if key.isupper():
        return is_secret_name(key)
    words = [word.lower() for word in _WORDS.findall(key)]
    joined = "_".join(words)
    return bool(_ALWAYS & set(words) or _KEYS.search(joined) or _TOKENS.search(joined))


def _text(text: str, known: list[str]) -> str:
    for secret in known:
        text = text.replace(secret, REDACTED)
    text = _SHAPES.sub(REDACTED, text)
    text = _USER_IN_URL.sub(rf"\1{REDACTED}@", text)
    return _ASSIGNMENT.sub(lambda m: f"{m[1]}={REDACTED}" if is_secret_name(m[1]) else m[0], text)


def _env_vars(value: Any) -> Iterator[Mapping[str, Any]]:
    entries: Iterable[Any] = ()
    if isinstance(value, Mapping):
        if isinstance(value.get("env_vars"), Mapping):
            yield value["env_vars"]
        entries = value.values()
    elif isinstance(value, list):
        entries = value
    for entry in entries:
        yield from _env_vars(entry)


def _is_path(value: str) -> bool:
    try:
        return Path(value).exists()
    except (OSError, ValueError):
        return False


def _replace(file: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            os.fchmod(out.fileno(), file.stat().st_mode & 0o777)
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
