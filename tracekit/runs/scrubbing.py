"""Redact secrets, host names and user names before a run is stored.

A secret is recognized by the name of its option or variable (`--api-key`, `AWS_SECRET_ACCESS_KEY=`), by its
position (user part of a URL, after `Bearer`), or by its form (`hf_...`, `AKIA...`); see
`tracekit.runs.secret_forms`. A secret that stands alone and has no such form cannot be recognized.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.runs import secret_forms as forms
from tracekit.runs.secret_forms import is_secret

if TYPE_CHECKING:
    from tracekit.runs.meta import RunMeta


HIDDEN = "***"
"""Replacement of a secret."""
HOST = "HOST"
"""Replacement of the host name."""
HOME = "~"
"""Replacement of a home folder."""

_TRACE = re.compile(r"(?<![\w.-])[\w.-]*_(\d+)\.(\d{12,20})(?=\.pt\.trace\.json)")
"""Torch's default name of a trace: host, process and time."""
_NO_HOST = r"trace_\1.\2"
_NO_NAMES = frozenset(
    {"localhost", "host", "linux", "ubuntu", "debian", "server", "node", "gpu", "cpu", "train", "test"}
)


def text(value: str) -> str:
    """Redact secrets, credentials in URLs, and user names in paths.

    Example:
        >>> text("git clone https://ann:pw@example.org/x into /home/ann/x with TOKEN=abcd1234")
        'git clone https://***@example.org/x into ~/x with TOKEN=***'
    """
    return _applied([_RARE, *_rules()], value)


def message(value: str) -> str:
    """Redact a message or a log: as `text`, and the name of this machine."""
    redacted: str = _hostless(text(value))
    return redacted


def texts(values: Sequence[str]) -> list[str]:
    """Redact many texts like `text`, but not `RARE` forms of tokens; fast for texts without secrets."""
    joined = "\n".join(values)
    small = joined.lower()
    rules = [rule for rule in _rules() if rule.may_apply(small)]
    return [_applied(rules, one) for one in values] if rules else list(values)


class _Rule(msgspec.Struct, frozen=True):
    """A rule of redaction.

    Attributes:
        markers: Substrings, in lower case, of which one must occur.
        apply: Redacts a text.
    """

    markers: tuple[str, ...]
    apply: Callable[[str], str]

    def may_apply(self, small: str) -> bool:
        return any(marker in small for marker in self.markers)


def _applied(rules: Sequence[_Rule], value: str) -> str:
    small = value.lower()
    for rule in rules:
        if rule.may_apply(small):
            value = rule.apply(value)
    return value


def _rules() -> list[_Rule]:
    """Return the rules, in the order of application."""
    own = str(Path.home())
    return [*_RULES, _Rule((own.lower(),), partial(_folder(own).sub, HOME))]


def words(command: Sequence[str]) -> list[str]:
    """Redact the words of a command.

    Example:
        >>> words(["python", "train.py", "--api-key", "abc", "--token=abc", "--max-tokens", "5"])
        ['python', 'train.py', '--api-key', '***', '--token=***', '--max-tokens', '5']
    """
    found, before = list[str](), ""
    for word in command:
        name, sign, _ = word.partition("=")
        pair = before in forms.PAIR_OPTIONS and re.fullmatch(forms.PAIR, word)
        if pair or (is_secret(before) and not word.startswith("-")):
            found.append(HIDDEN)
        elif sign and " " not in name and is_secret(name):
            found.append(f"{name}={HIDDEN}")
        else:
            found.append(_people(text(word)))
        before = word if word.startswith("-") and not sign else ""
    return found


def _people(value: str) -> str:
    """Redact names of accounts in a command; elsewhere, `x@y` and `~x` have other meanings."""
    value = re.sub(forms.PAIR_OPTION, rf"\1{HIDDEN}", value)
    value = re.sub(forms.ACCOUNT, f"{HIDDEN}@", value)
    return re.sub(forms.COMMAND_HOME_OF, HOME, value)


def tree(value: Any) -> Any:
    """Redact all texts in a JSON value; a list of texts is taken for a command."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {_name(key): _named(key, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(one, str) for one in value):
            return words(value)
        return [tree(one) for one in value]
    return value


def trace_name(name: str) -> str:
    """Redact the host name in a trace's file name, where torch puts it by default.

    Example:
        >>> trace_name("gpu-box.lan_4711.1763694900000000000.pt.trace.json")
        'trace_4711.1763694900000000000.pt.trace.json'
    """
    return _TRACE.sub(_NO_HOST, name)


def options(value: Any) -> Any:
    """Redact the options of a collector, including this machine's host name."""
    return _hostless(tree(value))


def scrubbed(meta: RunMeta) -> RunMeta:
    """Redact the metadata of a run."""
    git = meta.git
    if git is not None:
        below = {text(path): sha for path, sha in git.submodules.items()}
        git = replace(git, branch=git.branch and text(git.branch), submodules=below)
    return replace(
        meta,
        label=meta.label and text(meta.label),
        workload=tree(meta.workload),
        collector=replace(meta.collector, options=options(meta.collector.options)),
        command=_hostless(words(meta.command)),
        git=git,
        environment=tree(meta.environment),
        fingerprint=tree(meta.fingerprint),
        diagnostics=[replace(one, message=message(one.message)) for one in meta.diagnostics],
    )


def _name(key: Any) -> Any:
    return text(key) if isinstance(key, str) else key


def _named(name: Any, value: Any) -> Any:
    hides = isinstance(name, str) and isinstance(value, str) and value and is_secret(name)
    return HIDDEN if hides else tree(value)


def _unassigned(found: re.Match[str]) -> str:
    name, sign = found[1], found[2]
    opened = found["open"] or found[4]
    number = sign.lstrip("\\").startswith('"') and not opened  # of JSON, which would become invalid
    return f"{name}{sign}{opened}{HIDDEN}" if is_secret(name) and not number else found[0]


def _shapes(shapes: Sequence[tuple[tuple[str, ...], str]]) -> _Rule:
    """Return a rule for the forms of tokens, wherever they stand."""
    pattern = rf"(?<![A-Za-z0-9])(?:{'|'.join(pattern for _, pattern in shapes)})"
    return _Rule(tuple({one for markers, _ in shapes for one in markers}), partial(re.sub, pattern, HIDDEN))


# Patterns are compiled on first use.
_RULES = (
    _Rule(("://",), partial(re.sub, forms.URL, rf"\1{HIDDEN}@")),
    _Rule(("authorization",), partial(re.sub, forms.HEADER, rf"\1{HIDDEN}")),
    _Rule(("bearer",), partial(re.sub, forms.BEARER, rf"\1{HIDDEN}")),
    _Rule(("cookie",), partial(re.sub, forms.COOKIE, rf"\1{HIDDEN}")),
    _shapes(forms.COMMON),
    _Rule(forms.PARAMETERS, partial(re.sub, forms.PARAMETER, rf"\1{HIDDEN}")),
    _Rule(forms.NAMES, partial(re.sub, forms.ASSIGNED, _unassigned)),
    _Rule((".pt.trace.json",), partial(_TRACE.sub, _NO_HOST)),
    _Rule(("/home/", "users"), partial(re.sub, forms.FOLDER, HOME)),
    _Rule(("~",), partial(re.sub, forms.HOME_OF, HOME)),
)
_RARE = _shapes(forms.RARE)


@cache
def _folder(home: str) -> re.Pattern[str]:
    """Return a pattern for a folder at the start of a path; nothing for the root folder."""
    if len(Path(home).parts) < 2:
        return re.compile(r"(?!)")
    return re.compile(rf"(?<![\w.~-]){re.escape(home.rstrip('/'))}(?![\w.-])")


def _hostless(value: Any) -> Any:
    """Redact this machine's host name, as a separate word."""
    pattern = _hosts(socket.gethostname())
    if isinstance(value, str):
        return pattern.sub(HOST, value)
    if isinstance(value, dict):
        return {key: _hostless(one) for key, one in value.items()}
    return [_hostless(one) for one in value] if isinstance(value, list) else value


@cache
def _hosts(full: str) -> re.Pattern[str]:
    names = {full, full.partition(".")[0]}
    replaced = sorted((n for n in names if len(n) > 2 and n.lower() not in _NO_NAMES), key=len, reverse=True)
    within = "|".join(map(re.escape, replaced)) or "(?!)"
    return re.compile(rf"(?i)(?<![\w-])(?:{within})(?![\w-])")
