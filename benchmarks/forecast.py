"""Writes forecast.md: how far the forecast is from measurements that its fit did not see.

python benchmarks/forecast.py
"""

from __future__ import annotations

from pathlib import Path

from prlc import catalog
from prlc.compiler.calibration.calibrate import calibrate, to_yaml
from prlc.compiler.calibration.report import markdown
from prlc.compiler.calibration.rows import read

HERE = Path(__file__).parent
GPUS = ("h200", "h100", "b200", "rtx-a6000")


def main() -> None:
    """Fit the rows once a GPU, write catalog/kernels/*.yaml and this folder's forecast.md."""
    rows = [row for name in ("measurements", "own") for row in read(HERE / "data" / f"{name}.csv")]
    for gpu in GPUS:
        found = calibrate(rows, catalog.kernels("prior"), gpu, gpu)
        (HERE.parent / "catalog" / "kernels" / f"{gpu}.yaml").write_text(to_yaml(found.kernels), "utf-8")
        if gpu == GPUS[0]:
            (HERE / "forecast.md").write_text(markdown(found), "utf-8")


if __name__ == "__main__":
    main()
