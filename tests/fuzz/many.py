"""`python -m tests.fuzz.many 10000 [SEED]`: that many changed specs, what is wrong by its place, the slowest plan."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter

from hypothesis import Phase, given, seed, settings

from tests.fuzz.mutations import specs
from tests.fuzz.test_specs import BASES, judge, tried


def main(count: int, start: int) -> int:
    """1 where anything is wrong."""
    wrong: dict[str, tuple[str, str]] = {}
    times, counts, began = [0.0], Counter[str](), time.monotonic()

    @seed(start)
    @settings(tried(count, Phase.generate), derandomize=False)
    @given(specs(BASES))
    def one(spec: tuple[str, str]) -> None:
        counts["specs"] += 1
        try:
            times.append(judge(*spec))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__} {place.filename.rpartition('/')[2]}:{place.lineno}: {str(error)[:120]}"
            counts[said] += 1
            wrong.setdefault(said, spec)
        if counts["specs"] % 500 == 0:
            print(f"{counts['specs']} specs, {len(wrong)} faults: {', '.join(wrong)}", flush=True)

    one()
    for said, (name, text) in wrong.items():
        print(f"{counts[said]} x {said}\n--- {name}\n{text}")
    print(f"{counts['specs']} specs, {len(wrong)} faults; slowest {max(times):.2f} s; {time.monotonic() - began:.0f} s")
    return int(bool(wrong))


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(numbers + [10_000, 0][len(numbers) :])))
