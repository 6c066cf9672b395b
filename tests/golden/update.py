"""Write tests/golden from the examples: `python -m tests.golden.update`. Read the diff before a commit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
GOLDEN = ("tiny-moe-cpu", "glm-5.1-swe-28x8-h200")


def build(example: str, out: Path) -> None:
    """`prlc build` of an example, as a person runs it. Raises CalledProcessError."""
    subprocess.run(
        [sys.executable, "-m", "prlc.compiler.cli", "build", f"{example}.yaml", "-o", str(out)],
        cwd=EXAMPLES, check=True, stdout=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip


def main() -> None:
    """Build each example anew; a bundle is written whole or not at all."""
    for example in GOLDEN:
        folder = HERE / example
        shutil.rmtree(folder, ignore_errors=True)
        build(example, folder)
        print(f"{folder}: {sum(1 for p in folder.rglob('*') if p.is_file())} files")


if __name__ == "__main__":
    main()
