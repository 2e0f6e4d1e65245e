"""By which names secrets go, in options, variables and settings."""

from __future__ import annotations

import re

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
"""A token of these kinds is one of a language model's."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str) -> bool:
    """Whether what is called so is a secret.

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
