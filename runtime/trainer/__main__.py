"""torchrun entry: python -m prlc.runtime.trainer --config config/trainer.yaml

Exits 0 at max_steps, 75 when a signal ended it early (run it again to go on), 1 on failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train a policy from batch folders.")
    parser.add_argument("--config", type=Path, required=True, help="config/trainer.yaml")
    arguments = parser.parse_args()
    from prlc.runtime.ops.run_paths import RunPaths
    from prlc.schema import codec
    from prlc.schema.trainer import TrainerConfig

    settings = codec.load(TrainerConfig, arguments.config)
    os.environ["PRLC_TRAINER_DEVICE"] = settings.device
    from prlc.runtime.trainer.loop import run

    return run(settings, RunPaths.from_environment())


if __name__ == "__main__":
    try:
        code = main()
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # other ranks may hang in a collective; torchrun ends them
    sys.exit(code)
