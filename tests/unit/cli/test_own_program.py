from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.cli.main import run
from tracekit.recording.collect import program_title

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = ["--", "python", "train.py"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--workload", "mnist_cnn", *PROGRAM],
            "--workload mnist_cnn and the program python cannot be combined",
        ),
        ([], "Give a built-in workload with --workload, or your program after --"),
        (["--"], "Give a built-in workload with --workload, or your program after --"),
        (["--batch-size", "4", *PROGRAM], "--batch-size is an option of a built-in workload"),
        (["--mode", "infer", "--seed", "0", *PROGRAM], "--mode, --seed are options of a built-in workload"),
        (["--workload", "mnist_cnn", "--start-step", "3"], "--start-step is an option of your program"),
        (["--start-step", "-1", *PROGRAM], "--start-step -1 is too low; use --start-step 0 or more"),
        (["--steps", "0", *PROGRAM], "--steps 0 is too low; use --steps 1 or more"),
        (["--repeat", "0", *PROGRAM], "--repeat 0 is too low; use --repeat 1 or more"),
        (["--repeat", "0", "--workload", "mnist_cnn"], "--repeat 0 is too low; use --repeat 1 or more"),
        (["--", "no-such-program", "a"], "no-such-program not found"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["collect", "--store", str(tmp_path / "store"), *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.glob("store/*") if path.name != ".gitignore"] == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -u src/train.py --lr 0.1", "train"),
        ("/usr/bin/python3 -m pkg.train a.py", "pkg.train"),
        ("torchrun --nproc-per-node 2 train.py", "train"),
        ("python -m torch.distributed.run --standalone train.py", "train"),
        ("python -c pass x.py", "python"),
        ("./run-all.sh", "run-all"),
        ("my-tool train.py", "my-tool"),
    ],
)
def test_a_run_is_named_for_what_runs_not_for_what_starts_it(command: str, name: str) -> None:
    assert program_title(tuple(command.split())) == name
