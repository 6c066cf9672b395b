"""`python -m tests.fuzz.many 10000`: that many changed specs; what is wrong by its place, and the slowest plan."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter

from hypothesis import Phase, given

from tests.fuzz.mutations import specs
from tests.fuzz.test_specs import BASES, judge, tried


def main(count: int) -> int:
    """1 where anything is wrong."""
    wrong: dict[str, tuple[str, str]] = {}
    times, counts, began = [0.0], Counter[str](), time.monotonic()

    @tried(count, Phase.generate)
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
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
