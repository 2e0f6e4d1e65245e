"""Measurement in a new process: of a commit in its own worktree, or with a version of a package."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tracekit.ab.keeping import keep
from tracekit.bisecting.signature import counts
from tracekit.measuring.program import Program, measure, prepare
from tracekit.measuring.worktrees import worktrees

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tracekit.bisecting.model import Subject
    from tracekit.measuring.worktrees import Worktrees
    from tracekit.store import Store

VERSION = "{version}"


class Lab(Protocol):
    """Measures subjects."""

    def measure(self, subject: Subject) -> dict[str, float]:
        """Measure once; return the values by metric, times in ns.

        Raises:
            TracekitError: It does not build or run, or measured nothing.
        """
        ...


@dataclass(frozen=True)
class CommitLab:
    """Measures commits in worktrees; runs of `tracekit collect` are stored.

    Attributes:
        setup: Shell command that builds a worktree, once.
        signature: Name to count in the stored runs.
        warmup: Measurements in a new worktree that do not count: they fill caches.
    """

    program: Program
    store: Store
    trees: Worktrees
    scratch: Path
    setup: str = ""
    signature: str = ""
    warmup: int = 0
    ready: dict[str, Path] = field(default_factory=dict)

    def measure(self, subject: Subject) -> dict[str, float]:
        """Measure a commit once."""
        tree = self.ready.get(subject.key)
        if tree is None:
            tree = self._built(subject)
        return _values(self.program, self.store, tree, self.scratch, self.signature)

    def _built(self, subject: Subject) -> Path:
        tree = self.trees.folder / subject.key
        if not tree.exists():
            tree = self.trees.add(subject.key)
        if self.setup:
            prepare(self.program, tree, self.setup, scratch=self.scratch)
        for _ in range(self.warmup):
            measure(self.program, tree, scratch=self.scratch)
        self.ready[subject.key] = tree
        return tree


@dataclass
class VersionLab:
    """Measures versions of a package in the user's tree; a command installs each version.

    Attributes:
        setup: Shell command that makes a version the one that is used; `{version}` stands for it.
        warmup: Measurements of a version just prepared that do not count.
        prepared: The version that the environment holds now.
    """

    program: Program
    store: Store
    scratch: Path
    setup: str = ""
    signature: str = ""
    warmup: int = 0
    prepared: str = ""

    def measure(self, subject: Subject) -> dict[str, float]:
        """Measure a version once; installs it if the version changes."""
        words = tuple(word.replace(VERSION, subject.key) for word in self.program.command)
        program = replace(self.program, command=words)
        if self.prepared != subject.key:
            self._prepare(program, subject)
        return _values(program, self.store, program.repository, self.scratch, self.signature)

    def _prepare(self, program: Program, subject: Subject) -> None:
        self.prepared = ""
        if self.setup:
            script = self.setup.replace(VERSION, subject.key)
            prepare(program, program.repository, script, scratch=self.scratch)
        for _ in range(self.warmup):
            measure(program, program.repository, scratch=self.scratch)
        self.prepared = subject.key


def _values(program: Program, store: Store, tree: Path, scratch: Path, signature: str) -> dict[str, float]:
    sample = measure(program, tree, scratch=scratch)
    if sample.run is None:
        return sample.values
    found = {**sample.values, **counts(sample.run, signature)}
    keep(store, sample.run, label=sample.run.meta.label)
    return found


@contextmanager
def commit_lab(
    program: Program, store: Store, *, setup: str = "", signature: str = "", warmup: int = 0
) -> Iterator[CommitLab]:
    """Open a lab for commits; its worktrees are removed at the end."""
    with worktrees(store, program.repository) as trees, store.draft() as draft:
        yield CommitLab(program, store, trees, draft.path / "scratch", setup, signature, warmup)


@contextmanager
def version_lab(
    program: Program, store: Store, *, setup: str = "", signature: str = "", warmup: int = 0
) -> Iterator[VersionLab]:
    """Open a lab for versions of a package."""
    with store.draft() as draft:
        yield VersionLab(program, store, draft.path / "scratch", setup, signature, warmup)
