"""Redact secrets, host names and user names before a run is stored.

A secret is recognized by the name of its option or variable (`--api-key`, `AWS_SECRET_ACCESS_KEY=`), by its
position (user part of a URL, after `Bearer`), or by its form (`hf_...`, `AKIA...`). A secret that stands
alone and has no such form cannot be recognized.
"""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.runs.meta import RunMeta


_ALONE = frozenset(
    {
        "secret",
        "secrets",
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "apikey",
        "credential",
        "credentials",
        "authtoken",
        "accesstoken",
        "accesskey",
        "secretkey",
        "privatekey",
    }
)
_KINDS_OF_KEY = frozenset(
    {"access", "account", "api", "auth", "encryption", "private", "secret", "signing", "ssh", "wandb"}
)
_KINDS_OF_PASS = frozenset(
    {"admin", "db", "ftp", "mysql", "pg", "postgres", "proxy", "redis", "root", "smtp", "sudo", "user"}
)
_OF_TEXT = frozenset(
    {"bos", "cls", "eos", "image", "mask", "next", "pad", "per", "sep", "special", "start", "stop", "unk"}
)
"""Words before "token" that denote tokens of language models."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str) -> bool:
    """Return whether an option or variable of this name contains a secret.

    Example:
        >>> [is_secret(name) for name in ("--hf-token", "AWS_SECRET_ACCESS_KEY", "wandb.apiKey")]
        [True, True, True]
        >>> [is_secret(name) for name in ("--tokenizer", "--max-tokens", "pad_token", "key", "--pass")]
        [False, False, False, False, False]
    """
    parts = [part for part in re.split(r"[^a-z0-9]+", _CAMEL.sub("_", name).lower()) if part]
    if not parts:
        return False
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last == "id" and before == "key":
        return len(parts) > 2 and parts[-3] == "access"
    kinds = {
        "key": before in _KINDS_OF_KEY,
        "pass": before in _KINDS_OF_PASS,
        "token": before not in _OF_TEXT,
    }
    return last in _ALONE or kinds.get(last, False)


HIDDEN = "***"
"""Replacement of a secret."""
HOST = "HOST"
"""Replacement of the host name."""
HOME = "~"
"""Replacement of a home folder."""

_SHAPES = (
    r"hf_[A-Za-z0-9]{20,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"AIza[A-Za-z0-9_-]{35}",
    r"xox[abeprs]-[A-Za-z0-9-]{10,}",
    r"sk-[A-Za-z0-9_-]{20,}",
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]*-----END [A-Z ]*PRIVATE KEY-----)?",
)
_KNOWN = rf"(?<![A-Za-z0-9])(?:{'|'.join(_SHAPES)})"
_URL = r"(?<![A-Za-z0-9+.-])([A-Za-z0-9+.-]++://)[^/\s@'\"<>]+@"
_HEADER = (
    r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|token)\s+)?|bearer\s+)"
    r"[A-Za-z0-9._~+/=-]{6,}"
)
_ASSIGNED = (
    r"(?i)(?<![\w.-])(?=[\w.-]*?(?:token|secret|pass|pwd|key|credential))([\w.-]++)"
    r"([\"']?\s?[=:]\s?[\"']?)([^\s\"'&;,)\]}]{4,})"
)
_FOLDER = (
    r"(?<![\w.~-])/(?:home|Users)/[^/\\\s:\"',;)(]+"
    r"|(?<!\w)[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/)[^/\\\s:\"',;)(]+"
)
_TRACE = re.compile(r"(?<![\w.-])[\w.-]*_(\d+)\.(\d{12,20})(?=\.pt\.trace\.json)")
"""Torch's default name of a trace: host, process and time."""
_NAME_MARKERS = ("token", "secret", "passw", "passphrase", "pwd", "pass=", "key", "credential")
_SHAPE_MARKERS = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "akia", "asia", "aiza"),
    *("xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "sk-", "eyj", "private key"),
)
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
    return _applied(_rules(), value)


def message(value: str) -> str:
    """Redact a message or a log: as `text`, and the name of this machine."""
    redacted: str = _hostless(text(value))
    return redacted


def texts(values: Sequence[str]) -> list[str]:
    """Redact many texts like `text`, fast for texts without secrets."""
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
    found, hides = list[str](), False
    for word in command:
        name, sign, _ = word.partition("=")
        if hides and not word.startswith("-"):
            found.append(HIDDEN)
        elif sign and " " not in name and is_secret(name):
            found.append(f"{name}={HIDDEN}")
        else:
            found.append(text(word))
        hides = word.startswith("-") and not sign and is_secret(word)
    return found


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
    name, sign, value = found.groups()
    number = sign.startswith('"') and not sign.endswith('"')  # of JSON, which would become invalid
    return f"{name}{sign}{HIDDEN if is_secret(name) and not number else value}"


# Patterns are compiled on first use.
_RULES = (
    _Rule(("://",), partial(re.sub, _URL, rf"\1{HIDDEN}@")),
    _Rule(("bearer", "authorization"), partial(re.sub, _HEADER, rf"\1{HIDDEN}")),
    _Rule(_SHAPE_MARKERS, partial(re.sub, _KNOWN, HIDDEN)),
    _Rule(_NAME_MARKERS, partial(re.sub, _ASSIGNED, _unassigned)),
    _Rule((".pt.trace.json",), partial(_TRACE.sub, _NO_HOST)),
    _Rule(("/home/", "users"), partial(re.sub, _FOLDER, HOME)),
)


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
