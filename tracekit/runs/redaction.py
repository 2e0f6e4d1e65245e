"""Redact secrets, host names and user names before a run is stored.

A secret is recognized by the name of its option or variable (`--api-key`, `AWS_SECRET_ACCESS_KEY=`), by its
position (user part of a URL, after `Bearer`), or by its form (`hf_...`, `AKIA...`); `secret_forms.toml` has
the names and forms. A secret that stands alone and has no such form cannot be recognized.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tracekit.runs.command_redaction import HIDDEN, hide_random, redact_words
from tracekit.runs.meta import RunMeta

VERBATIM = "keep_command"
"""Option of a collector with which the command is stored as it is."""
HOST = "HOST"
"""Replacement of the host name."""
HOME = "~"
"""Replacement of a home folder."""
_COMMON_HOSTS = frozenset(
    {"localhost", "host", "linux", "ubuntu", "debian", "server", "node", "gpu", "cpu", "train", "test"}
)


@cache
def _secrets() -> dict[str, Any]:
    import tomllib  # what reads runs does not need it
    from importlib import resources

    return tomllib.loads((resources.files(__package__) / "secret_forms.toml").read_text("utf-8"))


def is_secret_name(name: str) -> bool:
    """Return whether an option or variable of this name contains a secret."""
    return any(map(_is_secret_name, (name.lower(), re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())))


def _is_secret_name(name: str) -> bool:
    names = _secrets()
    words = [word for word in re.split(r"[^a-z0-9]+", name) if word]
    is_switch = words[:1] and words[0] in names["switches"] and words[-2:] != ["auth", "token"]
    if not words or is_switch:  # `use_auth_token` has a token for value, or True
        return False
    *_, third, before, last = ("", "", *words)
    if last == "id":
        return (third, before) == ("access", "key") or before == "secret"
    if last == "command":  # prints a secret
        last, before = before, third
    if words[-3:-1] == ["pypi", "token"]:  # then follows the name of an index
        return True
    kinds = {
        "key": before in names["key_kinds"],
        "pass": before in names["pass_kinds"],
        "token": before not in names["model_tokens"],
    }
    joined = (before + last) in names["joined"]
    return (
        joined or last in names["words"] or kinds.get(last, False) or bool(re.search(names["endings"], last))
    )


class _Form(NamedTuple):
    """A form of a secret or of a name."""

    markers: tuple[str, ...]  # in lower case; one must occur, as a search for them is much faster
    pattern: str
    replacement: str | Callable[[re.Match[str]], str]


def _hide_value(assigned: re.Match[str]) -> str:
    """Hide the value of a name if it is a secret; numbers of JSON stay, which would become invalid."""
    name, sign = assigned[1], assigned[2]
    quote = assigned["open"] or assigned[4] or ""
    is_variable = (
        sign == ":" and assigned.string[assigned.start() - 1 : assigned.start()] == "$"
    )  # as `$PWD:/work`
    is_number = sign.lstrip("\\").startswith('"') and not quote
    return (
        f"{name}{sign}{quote}{HIDDEN}"
        if is_secret_name(name) and not (is_number or is_variable)
        else assigned[0]
    )


@cache
def _read_forms(table: str) -> tuple[_Form, ...]:
    """Return the forms of a table; without a replacement, the name before a value decides."""
    return tuple(
        _Form(tuple(markers), pattern, replacement or _hide_value)
        for markers, pattern, replacement in _secrets()[table]
    )


@cache
def _forms(home: str) -> tuple[_Form, ...]:
    """Return the forms in the order of application; a home folder at the root hides nothing."""
    folder = _Form((home.lower(),), rf"(?<![\w.~-]){re.escape(home.rstrip('/'))}(?![\w.-])", HOME)
    tables = ("named", "trace_names", "homes")
    return (
        *_read_forms("positions"),
        _token_form("tokens"),
        *(form for table in tables for form in _read_forms(table)),
        *([folder] if len(Path(home).parts) > 1 else ()),
    )


@cache
def _token_form(table: str) -> _Form:
    markers = tuple(dict.fromkeys(marker for texts, _ in _secrets()[table] for marker in texts))
    patterns = "|".join(pattern for _, pattern in _secrets()[table])
    return _Form(markers, rf"(?<![A-Za-z0-9])(?:{patterns})", HIDDEN)


def _redact(value: str, forms: Iterable[_Form]) -> str:
    small = value.lower()  # once: replacements make no new secrets
    for form in forms:
        if any(marker in small for marker in form.markers):
            value = re.sub(form.pattern, form.replacement, value)
    return value


def redact_text(value: str) -> str:
    """Redact secrets, credentials in URLs, and user names in paths.

    Example:
        >>> redact_text("git clone https://ann:pw@example.org/x into /home/ann/x with TOKEN=abcd1234")
        'git clone https://***@example.org/x into ~/x with TOKEN=***'
    """
    return _redact(value, (_token_form("rare_tokens"), *_forms(str(Path.home()))))


def redact_texts(values: Sequence[str]) -> list[str]:
    """Redact many texts like `redact_text`, but not rare forms of tokens; fast for texts without secrets."""
    small = "\n".join(values).lower()
    forms = [form for form in _forms(str(Path.home())) if any(marker in small for marker in form.markers)]
    return [_redact(value, forms) for value in values] if forms else list(values)


def redact_message(value: str) -> str:
    """Redact a message or a log like `redact_text`, and the name of this machine."""
    redacted: str = _hide_host(redact_text(value))
    return redacted


def redact_command(words: Sequence[str]) -> list[str]:
    """Redact the words of a command.

    Example:
        >>> redact_command(["python", "train.py", "--api-key", "abc", "--token=abc", "--max-tokens", "5"])
        ['python', 'train.py', '--api-key', '***', '--token=***', '--max-tokens', '5']
    """
    redacted, option = list[str](), ""
    known = [redact_text(word) for word in words]
    for given, word in zip(words, redact_words(known, is_secret_name), strict=True):
        name, sign, _ = word.partition("=")
        is_pair = re.fullmatch(_read_forms("commands")[0].pattern, f"{option} {word}")
        if is_pair or (is_secret_name(option) and not given.startswith("-")):
            redacted.append(HIDDEN)
        elif sign and " " not in name and is_secret_name(name):
            redacted.append(f"{name}={HIDDEN}")
        else:
            redacted.append(hide_random(_redact(word, _read_forms("commands"))))
        option = given if given.startswith("-") and not sign else ""
    return redacted


def redact_json(value: Any) -> Any:
    """Redact all texts in a JSON value; a list of texts is taken for a command."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return dict(_redact_item(key, inner) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        is_command = value and all(isinstance(inner, str) for inner in value)
        return redact_command(value) if is_command else [redact_json(inner) for inner in value]
    return value


def _redact_item(key: Any, value: Any) -> tuple[Any, Any]:
    if not isinstance(key, str):
        return key, redact_json(value)
    is_secret = isinstance(value, str) and value and is_secret_name(key)
    return redact_text(key), HIDDEN if is_secret else redact_json(value)


def redact_trace_name(name: str) -> str:
    """Redact the host name in a trace's file name, where torch puts it by default.

    Example:
        >>> redact_trace_name("gpu-box.lan_4711.1763694900000000000.pt.trace.json")
        'trace_4711.1763694900000000000.pt.trace.json'
    """
    return _redact(name, _read_forms("trace_names"))


def redact_options(value: Any) -> Any:
    """Redact the options of a collector, including this machine's host name."""
    return _hide_host(redact_json(value))


def redact_meta(meta: RunMeta) -> RunMeta:
    """Redact the metadata of a run."""
    git = meta.git
    if git is not None:
        submodules = {redact_text(path): sha for path, sha in git.submodules.items()}
        git = replace(git, branch=git.branch and redact_text(git.branch), submodules=submodules)
    return replace(
        meta,
        label=meta.label and redact_text(meta.label),
        workload=redact_json(meta.workload),
        collector=replace(meta.collector, options=redact_options(meta.collector.options)),
        command=meta.command
        if meta.collector.options.get(VERBATIM) is True
        else _hide_host(redact_command(meta.command)),
        git=git,
        environment=redact_json(meta.environment),
        fingerprint=redact_json(meta.fingerprint),
        diagnostics=[replace(note, message=redact_message(note.message)) for note in meta.diagnostics],
    )


def _hide_host(value: Any) -> Any:
    """Redact this machine's host name, as a separate word."""
    import socket

    if isinstance(value, str):
        return re.sub(_host_pattern(socket.gethostname()), HOST, value)
    if isinstance(value, dict):
        return {key: _hide_host(inner) for key, inner in value.items()}
    return [_hide_host(inner) for inner in value] if isinstance(value, list) else value


@cache
def _host_pattern(full: str) -> str:
    names = {name for name in (full, full.partition(".")[0]) if len(name) > 2}
    hidden = sorted((name for name in names if name.lower() not in _COMMON_HOSTS), key=len, reverse=True)
    return rf"(?i)(?<![\w-])(?:{'|'.join(map(re.escape, hidden)) or '(?!)'})(?![\w-])"
