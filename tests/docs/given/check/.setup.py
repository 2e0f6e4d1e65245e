"""A repository of seven commits, of which the fifth makes `bench.py` slower."""

import subprocess
from pathlib import Path

BENCH = """\
import time

begin = time.process_time()
sum(number * number for number in range({count}))
print(f"step: {{1e3 * (time.process_time() - begin):.3f}} ms")
"""


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True)


git("init", "--quiet", "--initial-branch=main")
for at in range(7):
    Path("bench.py").write_text(BENCH.format(count=400_000 if at < 4 else 1_200_000))
    Path("notes.txt").write_text(f"commit {at}\n")
    git("add", "bench.py", "notes.txt")
    git("commit", "--quiet", f"--message={'Sum more squares' if at == 4 else f'Change {at}'}")
    if at == 0:
        git("tag", "v1.0")
