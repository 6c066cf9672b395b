"""catalog/compat.yaml: which features of a run go together, in which versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prlc.schema.fields import doc

Verdict = Literal["works", "works_if", "refused", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One feature that a run can have."""

    name: str = doc("Name, as rows use it.", pattern="^[a-z][a-z0-9_]*$")
    means: str = doc("When a run has it.")
    path: str = doc("Key of the spec that asks for it, dotted; empty: no spec of this release can.", default="")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What happens where all features of a row meet."""

    id: str = doc("Stable name of the row.", pattern="^[a-z0-9][a-z0-9-]*$")
    features: tuple[str, ...] = doc("Features that must all be there for the row to speak.")
    versions: dict[str, str] = doc(
        "Package to range, e.g. vllm: '>=0.26,<0.34'; the row speaks where the stack lies in all of them.",
        factory=dict,
    )
    verdict: Verdict = doc("works; works_if: with `needs` or `probe`; refused: never; unknown: nobody has shown it.")
    needs: tuple[str, ...] = doc("works_if: features that must be there too.", default=())
    probe: str = doc("works_if: what only the machines can tell, for the preflight.", default="")
    reason: str = doc("Why, in one or two sentences.")
    price: str = doc("What it costs to do without the feature that gives way.", default="")
    cure: str = doc("What to write in the spec instead.", default="")
    source: str = doc("Where it is stated, or how it was seen.")


@dataclass(frozen=True, kw_only=True)
class Compat:
    """The whole table."""

    stack: dict[str, str] = doc("Versions that the bundles of this release name: package to version.")
    features: tuple[Feature, ...] = doc("Every feature that a row may name.")
    rows: tuple[Pair, ...] = doc("One row a combination.")
