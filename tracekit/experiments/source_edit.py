"""Diffs of the user's source that make confirmed changes, where the line is known that they concern.

`tracekit try --apply` prints them and writes nothing. A change took effect at a line of the program: its
argument is added to the call there, or replaced; settings of the process are added after the imports.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracekit.recording.changes import Argument, Change, Statement


@dataclass(frozen=True)
class _Edit:
    """Text to put in place of a range of bytes."""

    start: int
    end: int
    text: bytes


def diff_sources(
    changes: Sequence[Change], places: Mapping[str, str], names: Sequence[str], root: Path
) -> str:
    """Return a unified diff that makes changes in files below a folder; empty if no line is known.

    Args:
        changes: The changes.
        places: Where each took effect first, as file:line, by name.
        names: Names of the changes.
        root: Folder of the program; files elsewhere, such as libraries, are left alone.
    """
    edits: dict[Path, list[tuple[Change, int]]] = {}
    for name, change in zip(names, changes, strict=True):
        file, _, line = places.get(name, "").rpartition(":")
        path = Path(file)
        if (
            change.edit
            and line.isdigit()
            and path.is_file()
            and path.resolve().is_relative_to(root.resolve())
        ):
            edits.setdefault(path, []).append((change, int(line)))
    return "".join(_diff_file(path, wanted, root) for path, wanted in edits.items())


def _diff_file(path: Path, wanted: Iterable[tuple[Change, int]], root: Path) -> str:
    source = path.read_bytes()
    with suppress(SyntaxError, ValueError):
        tree = ast.parse(source)
        offsets = _line_offsets(source)
        edits = [edit for change, line in wanted if (edit := _find_edit(change, line, tree, source, offsets))]
        changed = _apply(source, edits)
        name = path.resolve().relative_to(root.resolve()).as_posix()
        old, new = (text.decode("utf-8", "replace").splitlines(keepends=True) for text in (source, changed))
        return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))
    return ""


def _line_offsets(source: bytes) -> list[int]:
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def _apply(source: bytes, edits: Iterable[_Edit]) -> bytes:
    """Apply edits from the end, so that the places of the others stay."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        source = source[: edit.start] + edit.text + source[edit.end :]
    return source


def _find_edit(
    change: Change, line: int, tree: ast.Module, source: bytes, offsets: list[int]
) -> _Edit | None:
    if isinstance(change.edit, Statement):
        return _insert_statement(change.edit, tree, offsets)
    call = _find_call(change.edit, line, tree) if change.edit else None
    return _set_argument(change.edit, call, source, offsets) if change.edit and call else None


def _find_call(argument: Argument, line: int, tree: ast.Module) -> ast.Call | None:
    """Return the innermost call of such a function that a line is part of."""
    innermost: ast.Call | None = None
    for node in ast.walk(tree):  # outer ones before inner ones
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in argument.functions:
                innermost = node
    return innermost


def _set_argument(argument: Argument, call: ast.Call, source: bytes, offsets: list[int]) -> _Edit | None:
    """Replace the value of an argument, or add it as the last one; None where `**` may contain it."""
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    given: ast.expr | None = next((word.value for word in call.keywords if word.arg == argument.name), None)
    if given is None and argument.position is not None and len(call.args) > argument.position:
        given = call.args[argument.position]
    if given is not None:
        return _Edit(*_range(given, offsets), argument.value.encode())
    last = max(
        (*call.args, *(word.value for word in call.keywords)),
        key=lambda node: _range(node, offsets)[1],
        default=None,
    )
    text = f"{argument.name}={argument.value}"
    parenthesis = _range(call, offsets)[1] - 1
    if last is None:
        return _Edit(parenthesis, parenthesis, text.encode())
    end = _range(last, offsets)[1]
    while source[end : end + 1] == b")" and end < parenthesis:
        end += 1  # that of an argument in parentheses
    return _Edit(end, end, f", {text}".encode())


def _range(node: ast.expr, offsets: list[int]) -> tuple[int, int]:
    """Return the first byte of a node and the one after it."""
    end_line, end_column = node.end_lineno or 1, node.end_col_offset or 0  # known, of a parsed module
    return offsets[node.lineno - 1] + node.col_offset, offsets[end_line - 1] + end_column


def _insert_statement(statement: Statement, tree: ast.Module, offsets: list[int]) -> _Edit | None:
    """Add lines after the last import at the top of a module."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if not imports:
        return None
    end = offsets[min(imports[-1].end_lineno or imports[-1].lineno, len(offsets) - 1)]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    lines = [f"import {name}" for name in statement.modules if name not in names]
    return _Edit(end, end, "".join(f"{line}\n" for line in (*lines, "", statement.code)).encode())
