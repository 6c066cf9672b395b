"""The fit: it finds coefficients that made the rows, forgives an outlier, holds what is held."""

from __future__ import annotations

import random

import pytest
from prlc.compiler.calibration.calibrate import quantiles
from prlc.compiler.calibration.fit import REACH, Prior, fit

TRUE = {"a": 2.0, "b": 0.5, "c": 3.0}
PRIORS = {name: Prior(1.0, 0.7) for name in TRUE}


def rows(count: int, noise: float = 0.0) -> list[tuple[dict[str, float], float]]:
    draw = random.Random(7)
    made = []
    for _ in range(count):
        x = {name: draw.uniform(0.1, 3) for name in TRUE}
        made.append((x, sum(TRUE[n] * v for n, v in x.items()) * (1 + noise * draw.gauss(0, 1))))
    return made


def test_it_finds_what_made_the_rows() -> None:
    assert fit(rows(60), PRIORS) == pytest.approx(TRUE, rel=0.03)


def test_one_wild_row_hardly_moves_it() -> None:
    made = rows(40)
    made[3] = (made[3][0], 10 * made[3][1])
    assert fit(made, PRIORS) == pytest.approx(TRUE, rel=0.06)


def test_without_rows_the_priors_stand() -> None:
    assert fit([], PRIORS) == dict.fromkeys(TRUE, 1.0)


def test_a_coefficient_without_spread_is_held() -> None:
    held = {**PRIORS, "c": Prior(3.0, 0.0)}
    assert fit(rows(40), held) == pytest.approx(TRUE, rel=0.02)
    assert fit(rows(40), {**PRIORS, "c": Prior(1.0, 0.0)})["c"] == 1.0


def test_a_term_that_no_row_has_keeps_its_prior() -> None:
    assert fit(rows(20), {**PRIORS, "d": Prior(9.0, 0.5)})["d"] == 9.0


def test_few_rows_stay_near_the_prior_and_many_within_reach() -> None:
    prior = {"a": Prior(1.0, 0.1)}
    assert fit([({"a": 1.0}, 1.3)], prior)["a"] == pytest.approx(1.1, abs=0.1)
    assert fit([({"a": 1.0}, 30.0)] * 5000, prior)["a"] == pytest.approx(1 + REACH[1] * 0.1)
    assert fit([({"a": 1.0}, 0.01)] * 5000, prior)["a"] == pytest.approx(1 - REACH[0] * 0.1)


def test_bands_widen_with_fewer_groups() -> None:
    ratios = [1 + k / 100 for k in range(-20, 21)]
    many, few = quantiles(ratios, 40), quantiles(ratios, 3)
    assert few[0] < many[0] < 1 < many[1] < few[1]
    assert many == pytest.approx((0.81, 1.19), abs=0.02)
    assert quantiles([1.1, 1.2], 2)[0] == 1.0  # a band always holds the prediction
