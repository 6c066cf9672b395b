"""Fit of coefficients to cases: within physical limits, robust, held near their priors; some dozen unknowns.

Minimises  sum_i w_i (sum_j c_j x_ij / y_i - 1)^2 + sum_j (NOISE / spread_j)^2 ((c_j - p_j) / p_j)^2
by coordinate descent; w_i are Huber weights of the relative residuals (Huber 1964), renewed a few times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOISE = 0.06  # relative spread of one configuration between releases (Megatron-Bridge, Qwen3-235B on 256 H100)
HUBER = 0.15  # relative residual from which a row counts less
ROUNDS, SWEEPS = 4, 100
REACH = (1.5, 8.0)  # spreads below and above its prior that a coefficient may move


@dataclass(frozen=True)
class Prior:
    """What a coefficient is without data, and the relative standard deviation of that belief; 0 holds it."""

    value: float
    spread: float


def fit(
    rows: Sequence[tuple[Mapping[str, float], float]], priors: Mapping[str, Prior], weights: Sequence[float] = ()
) -> dict[str, float]:
    """Coefficients of all priors. A row is (feature by coefficient name, measured value)."""
    free = sorted(name for name, prior in priors.items() if prior.spread > 0 and prior.value > 0)
    known = {name: prior.value for name, prior in priors.items()}
    if not rows or not free:
        return known
    # in units of the prior: a_ij = p_j x_ij / y_i, unknowns near 1
    table = [[priors[name].value * x.get(name, 0.0) / y for name in free] for x, y in rows]
    held = [sum(known[n] * v for n, v in x.items() if n not in set(free)) / y for x, y in rows]
    used = [j for j in range(len(free)) if any(row[j] for row in table)]
    penalty = [(NOISE / priors[name].spread) ** 2 for name in free]
    limits = [(max(0.02, 1 - REACH[0] * priors[n].spread), 1 + REACH[1] * priors[n].spread) for n in free]
    own = list(weights) or [1.0] * len(rows)
    found = [1.0] * len(free)
    huber = own
    for _ in range(ROUNDS):
        _descend(table, held, huber, penalty, limits, used, found)
        errors = [
            h + sum(a * c for a, c in zip(row, found, strict=True)) - 1 for row, h in zip(table, held, strict=True)
        ]
        huber = [w * min(1.0, HUBER / max(abs(e), 1e-12)) for w, e in zip(own, errors, strict=True)]
    known.update({free[j]: found[j] * priors[free[j]].value for j in used})
    return known


def _descend(
    table: list[list[float]],
    held: list[float],
    weights: list[float],
    penalty: list[float],
    limits: list[tuple[float, float]],
    used: list[int],
    found: list[float],
) -> None:
    """Coordinate descent in place on the normal equations."""
    normal = {j: [0.0] * len(used) for j in used}
    right = {j: penalty[j] for j in used}
    for w, row, h in zip(weights, table, held, strict=True):
        present = [(position, row[k]) for position, k in enumerate(used) if row[k]]
        for j in used:
            if row[j]:
                right[j] += w * row[j] * (1 - h)
                for position, value in present:
                    normal[j][position] += w * row[j] * value
    for _ in range(SWEEPS):
        change = 0.0
        for position, j in enumerate(used):
            others = sum(n * found[k] for n, k in zip(normal[j], used, strict=True)) - normal[j][position] * found[j]
            better = min(max(limits[j][0], (right[j] - others) / (normal[j][position] + penalty[j])), limits[j][1])
            change = max(change, abs(better - found[j]))
            found[j] = better
        if change < 1e-5:
            return
