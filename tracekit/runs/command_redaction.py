"""Redact secrets in commands: in words, in code of shells and Python inside of words, and in random words.

A value is a secret by the name of its option (`--hf-token S`, `-Dtoken=S`, `export API_KEY S`), by the
program that takes it (`sshpass -p S`), or since it looks random. Code in a word is parsed, so that
`bash -c "train --password 'S'"` and `python -c "login(key='S')"` are redacted like plain words. Where in
doubt, a value is hidden: a stored command is for reading; `--keep-command` stores it as it is.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath

HIDDEN = "***"
"""Replacement of a secret."""
Named = Callable[[str], bool]
"""Whether an option or variable of a name has a secret."""
MAX_DEPTH = 4
"""Code inside of code that is parsed."""
MAX_CODE = 1 << 15
"""Length of code that is parsed, in all words of a command: it takes up to 30 µs a character."""
_SETTERS = {"set", "--set", "--set-string", "export", "setenv", "setx", "-e", "--env", "put", "add", "create"}
"""Words before the name of a variable whose value is the next word."""
_SETTERS_OF = {"connect", "login", "modify"}
"""Words before a place, and after that the name of a variable whose value is the next word."""
_OPTIONS_OF = {
    "7z": ("-p",), "az": ("-p",), "bcp": ("-P",), "cqlsh": ("-p",), "curl": ("-b", "-u", "-U"),
    "docker": ("-p",), "gh secret": ("-b", "--body"), "helm": ("-p",), "htpasswd": (), "http": ("-a",),
    "https": ("-a",), "ipmitool": ("-P",), "jarsigner": ("-keypass", "-storepass"), "kaggle config": ("-v",),
    "keytool": ("-keypass", "-storepass"), "ldapsearch": ("-w",), "lftp": ("-u",), "mariadb": ("-p",),
    "mongo": ("-p",), "mongodump": ("-p",), "mongosh": ("-p",), "mosquitto_pub": ("-P",),
    "mosquitto_sub": ("-P",), "mysql": ("-p",), "mysqldump": ("-p",), "oc": ("-p",),
    "openssl": ("-K", "-k", "-pass", "-passin", "-passout"), "pdftotext": ("-opw", "-upw"), "plink": ("-pw",),
    "podman": ("-p",), "pscp": ("-pw",), "rabbitmqadmin": ("-p",), "redis-cli": ("-a",), "smbclient": ("-U",),
    "snmpwalk": ("-A", "-X"), "sqlcmd": ("-P",), "ssh-keygen": ("-N", "-P"), "sshpass": ("-p",),
    "twine": ("-p",),
    "unrar": ("-p",), "unzip": ("-P",), "xfreerdp": ("/p:",), "zip": ("-P",),
}  # fmt: skip
"""Options of programs, or of their commands, that take a secret in the same word or in the next."""
_FIRST = {"http", "https"}  # programs whose names are common words: they count only at the start of a command
_LOGINS = {
    ("alias", "set"), ("cargo", "login"), ("comet", "login"), ("config", "add-authtoken"), ("hf", "login"),
    ("neptune", "login"), ("ngrok", "authtoken"), ("poetry", "config"), ("snyk", "auth"), ("vault", "login"),
    ("wandb", "login"),
}  # fmt: skip
"""Programs and commands whose last plain word is a secret."""
_FROM_STDIN = re.compile(r"--?(?:pass(?:word|phrase)?|token|secret)[-_]?stdin|--with-token")
"""Options with which a program reads a secret from its input."""
_PORTS = re.compile(r"(?:[\w.]+:)?\d+(?:-\d+)?(?::\d+(?:-\d+)?)?(?:/\w+)?")  # what `docker run -p` takes
_CODE = r"\s|[;(\[]"
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?|ipython3?")
_DEFINED = re.compile(r"-[A-Za-z](?=[A-Za-z_])")
_TOKEN = re.compile(
    r"""(?P<space>\s+|[;&|()<>]+)|(?P<word>(?:[^\s'"\\;&|()<>]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)|(?P<other>.)""",
    re.DOTALL,
)
_RANDOM = re.compile(r"[A-Za-z0-9+_~-]{20,}={0,2}")
_PARTS = re.compile(r"[A-Za-z0-9]+")
_RUNS = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
_MAX_MEAN_RUN = 1.9
"""Mean length of letters of one case or digits in a row; 1.6 in random text, over 2 in names."""
_MIN_RANDOM = 8
"""Letters and digits without a sign between them, of which random text has more; model names have fewer."""
_HEX = re.compile(r"(?:0x|GPU-|MIG-)?(?:[0-9a-f-]+|[0-9A-F-]+)")
_GETTERS = {
    "get",
    "getenv",
    "setdefault",
    "putenv",
    "set",
    "setenv",
    "setattr",
    "pop",
    "__setitem__",
    "config_set",
}
_LOGIN = re.compile(r"(?i)log_?in|auth|authenticate|init|client|connect")


def redact_words(words: Sequence[str], is_secret: Named, depth: int = 0) -> list[str]:
    """Redact the words of a command by their names, programs and code; other forms are left to the caller.

    Args:
        words: The words.
        is_secret: Whether the value of an option or variable of this name is a secret.
        depth: How deep in other code the command is.

    Example:
        >>> redact_words(["sshpass", "-p", "abc", "bash", "-c", "x --pw 'a b'"], lambda name: name == "pw")
        ['sshpass', '-p', '***', 'bash', '-c', 'x --pw ***']
    """
    redacted = [*words]
    programs, left = [PurePath(word).name for word in words], MAX_CODE
    takes = _options_with_secrets(programs)
    for place, (before, word) in enumerate(pairwise(("", *words))):
        is_set = _sets(words[max(0, place - 4) : place - 1]) and _is_variable(before, is_secret)
        if is_set or _is_value(before, word, is_secret) or (before in takes and not _is_port(word)):
            redacted[place] = HIDDEN
        else:
            is_code = bool(re.search(_CODE, word))
            left -= len(word) * is_code
            hides = is_code and left <= 0
            redacted[place] = HIDDEN if hides else _redact_word(before, word, takes, is_secret, depth)
    for place, pair in enumerate(pairwise(programs)):
        if pair in _LOGINS and len(words) > place + 2 and not words[-1].startswith("-"):
            redacted[-1] = HIDDEN
    return redacted


def _options_with_secrets(programs: Sequence[str]) -> set[str]:
    """Return the options that take secrets, of the programs among words and of their commands."""
    pairs = (" ".join(pair) for pair in pairwise(programs))
    names = {*programs[:1], *(name for name in programs if name not in _FIRST), *pairs}
    return {option for name in names for option in _OPTIONS_OF.get(name, ())}


def _sets(words: Sequence[str]) -> bool:
    """Whether the words before a name set it: `set` with options, or `login NAME`, as in a file `.netrc`."""
    plain = [word for word in words if not word.startswith("-") or word in _SETTERS]
    return bool(plain) and (plain[-1] in _SETTERS or not _SETTERS_OF.isdisjoint(plain[-2:-1]))


def _is_value(option: str, word: str, is_secret: Named) -> bool:
    """Whether a word is the secret value of the option before it; a value may begin with a dash."""
    if not option.startswith("-") or "=" in option or not word:
        return False
    if re.fullmatch(r"--(?:[\w-]*[_-])?pass", option):  # also the number of a pass
        return not re.fullmatch(r"\d+|(?i:true|false|yes|no|on|off|none)|--[a-z].*|-[a-zA-Z]", word)
    return is_secret(option.lstrip("-")) and not re.fullmatch(r"--[a-z][\w-]*(?:=.*)?|-[a-zA-Z]", word)


def _is_port(word: str) -> bool:
    return bool(_PORTS.fullmatch(word)) or word.startswith("-")


def _is_variable(name: str, is_secret: Named) -> bool:
    is_name = re.fullmatch(r"(?://)?[A-Za-z_][\w./:-]*", name)
    return bool(is_name) and (is_secret(name) or name.lower() in ("key", "pass"))


def _redact_word(before: str, word: str, takes: set[str], is_secret: Named, depth: int) -> str:
    name, sign, value = word.partition("=")
    plain = name[match.end() :] if (match := _DEFINED.match(name)) else name
    if sign and value and " " not in name and (is_secret(plain) or is_secret(name)):
        return f"{name}={HIDDEN}"
    if name == "--from-literal" and "=" in value:  # of `kubectl create secret`
        return f"{name}={value.partition('=')[0]}={HIDDEN}"
    short = (one for one in takes if (len(one) == 2 or one.endswith(":")) and word.startswith(one))
    if (attached := next(short, "")) and word != attached:
        return word if _is_port(word[2:]) else attached + HIDDEN
    if not re.search(_CODE, word):
        return word
    if depth < MAX_DEPTH:
        return redact_code(word, is_secret, depth + 1)
    return HIDDEN if re.search(r"\s", word) else word


def redact_code(code: str, is_secret: Named, depth: int = 1) -> str:
    """Redact a text that may be code of Python or of a shell; the rest of it stays as it is written.

    Example:
        >>> redact_code("os.environ['A_TOKEN'] = 'x'; f(1)", lambda name: name == "A_TOKEN")
        "os.environ['A_TOKEN'] = '***'; f(1)"
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings, which are of no interest here
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _redact_shell(code, is_secret, depth)
    # a command such as `mysql -uann -pS` is a difference in Python, without secrets
    return _redact_python(code, tree, is_secret, depth) or _redact_shell(code, is_secret, depth)


def _redact_shell(code: str, is_secret: Named, depth: int) -> str:
    """Redact the simple commands of a shell's code, between `;`, `&&`, `|` and parentheses."""
    pieces = [(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(code)]
    result, command, piped = [text for _, text in pieces], list[int](), list[int]()
    for place, (kind, text) in enumerate((*pieces, ("space", ";"))):
        if kind == "word":
            command.append(place)
        elif kind == "space" and text.strip() and "<" not in text and ">" not in text:
            plain = [_unquote(pieces[index][1]) for index in command]
            if any(map(_FROM_STDIN.fullmatch, plain)) or {"sudo", "-S"} <= set(plain):
                given = (index for index in command if "<<<" in result[max(0, index - 2) : index])
                for index in (*piped[1:], *given):  # the words of `echo`, and the one after `<<<`
                    result[index] = HIDDEN
            for index, old, new in zip(command, plain, redact_words(plain, is_secret, depth), strict=True):
                if old != new:
                    result[index] = (
                        new if re.fullmatch(r"[\w=*:./-]+", new) else _quote(new, pieces[index][1])
                    )
            command, piped = [], command if text.strip() == "|" else []
    return "".join(result)


def _unquote(word: str) -> str:
    try:
        return "".join(shlex.split(word)) if re.search(r"['\"\\]", word) else word
    except ValueError:
        return word.strip("'\"")


def _quote(word: str, former: str) -> str:
    mark = former[0] if former[0] in "'\"" and former[0] not in word else ""
    return f"{mark}{word}{mark}" if mark else shlex.quote(word)


def _redact_python(code: str, tree: ast.AST, is_secret: Named, depth: int) -> str:
    """Redact code of Python; an empty text if it has no secrets."""
    hidden = [
        text for node in ast.walk(tree) for value in _secrets_of(node, is_secret) for text in _texts(value)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1:
            hidden += _secret_words(node.elts, is_secret, depth)
    starts = [0]
    for line in code.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    text, spans = code.encode(), dict[tuple[int, int], str]()
    formatted = {
        id(part): node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    inside = {id(part) for node in hidden for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            inner = redact_code(node.value, is_secret, depth + 1) if depth < MAX_DEPTH else HIDDEN
            whole = formatted.get(id(node))
            if inner != node.value and id(whole or node) not in inside:
                # the parts of a formatted text have no places of their own before Python 3.12
                spans[_span(whole or node, starts)] = f"'{HIDDEN}'" if whole else repr(inner)
    spans |= {_span(node, starts): f"'{HIDDEN}'" for node in hidden}
    for (start, end), new in sorted(spans.items(), reverse=True):
        text = text[:start] + new.encode() + text[end:]
    return text.decode() if spans else ""


def _secret_words(nodes: Sequence[ast.expr], is_secret: Named, depth: int) -> list[ast.expr]:
    """Return those of a list's texts that have secrets if they are the words of a command."""
    words = [str(node.value) if isinstance(node, ast.Constant) else "" for node in nodes]
    changed = zip(nodes, words, redact_words(words, is_secret, depth + 1), strict=True)
    return [node for node, old, new in changed if old != new]


def _span(node: ast.expr, starts: Sequence[int]) -> tuple[int, int]:
    end_line, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end


def _texts(value: ast.AST) -> Iterator[ast.expr]:
    """The texts in a value; a formatted one as a whole."""
    waiting = [value]
    while waiting:  # a long sum is nested deeper than functions can be
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and node.value
        ):
            yield node
        else:
            waiting += ast.iter_child_nodes(node)


def _secrets_of(node: ast.AST, is_secret: Named) -> Iterator[ast.AST]:
    """Values in a node that its names say are secrets."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and node.value:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(is_secret(_name_of(target)) for target in targets):
            yield node.value
    elif isinstance(node, ast.Dict):
        yield from (v for k, v in zip(node.keys, node.values, strict=True) if k and is_secret(_name_of(k)))
    elif isinstance(node, ast.Call):
        called = _name_of(node.func)
        for keyword in node.keywords:
            is_key = keyword.arg == "key" and _LOGIN.search(called)
            if keyword.arg and (is_key or is_secret(keyword.arg)):
                yield keyword.value
        if re.fullmatch(r"(?i)log_?in|set_\w*(?:token|key|password)|authenticate", called):
            yield from node.args
        elif called in _GETTERS and len(node.args) > 1:
            yield from (node.args[-1],) if any(is_secret(_name_of(one)) for one in node.args[:-1]) else ()


def _name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return _name_of(node.slice)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def hide_random(text: str) -> str:
    """Hide what looks random, as tokens without a known form do; hexadecimal digits may be a commit's.

    Example:
        >>> hide_random("x=Zk39xQp2LmW8vTr5YbN1 Meta-Llama-3.1-8B-Instruct 9f86d081884c7d659a2feaa0c55a")
        'x=*** Meta-Llama-3.1-8B-Instruct 9f86d081884c7d659a2feaa0c55a'
    """
    return _RANDOM.sub(lambda match: HIDDEN if _is_random(match.group()) else match.group(), text)


def _is_random(word: str) -> bool:
    if _HEX.fullmatch(word) or sum(map(str.isdigit, word)) < 2 or not re.search(r"[A-Za-z]", word):
        return False
    if max(map(len, _PARTS.findall(word))) < _MIN_RANDOM:
        return False
    runs = _RUNS.findall(word)
    return sum(map(len, runs)) / len(runs) <= _MAX_MEAN_RUN
