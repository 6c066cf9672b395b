"""Coefficients as the formulas use them: plain floats, read once per kernels file."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from prlc import catalog

if TYPE_CHECKING:
    from prlc.schema.hardware import Gpu
    from prlc.schema.kernels import Band, Curve, Kernels

RUNTIME = "prlc"  # the trainer of a bundle: its own coefficients are name@prlc


@dataclass(frozen=True)
class Rates:
    """The numbers of one kernels file; `document` keeps their sources."""

    document: Kernels
    trainer: Mapping[str, float]
    runtime: Mapping[str, float]  # the same, as a bundle's own trainer has them where it was measured
    decode: Mapping[str, float]
    prefill: Mapping[str, float]
    network: Mapping[str, float]
    loop: Mapping[str, float]
    curves: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]  # name -> (log x, log y)

    def curve(self, name: str, x: float) -> float:
        """The curve at x, straight in logarithms between its points and constant outside them."""
        return interpolate(*self.curves[name], x)

    def band(self, quantity: str) -> Band:
        """The error of a quantity on rows that the fit did not see."""
        return self.document.bands[quantity]


def interpolate(xs: tuple[float, ...], ys: tuple[float, ...], x: float) -> float:
    """exp of the piecewise-linear function through (xs, ys) at log(x), constant outside.

    >>> interpolate((0.0, 2.0), (0.0, 4.0), 2.718281828459045)
    7.38905609893065
    """
    at = math.log(max(x, 1e-9))
    if at <= xs[0]:
        return math.exp(ys[0])
    if at >= xs[-1]:
        return math.exp(ys[-1])
    right = bisect.bisect_right(xs, at)
    left = right - 1
    share = (at - xs[left]) / (xs[right] - xs[left])
    return math.exp(ys[left] + share * (ys[right] - ys[left]))


def rates_of(document: Kernels) -> Rates:
    """The plain numbers of a kernels document."""

    def plain(room: Mapping[str, object]) -> dict[str, float]:
        return {name: coefficient.value for name, coefficient in room.items()}  # type: ignore[attr-defined]

    trainer = plain(document.trainer)
    own = {name: trainer.get(f"{name}@{RUNTIME}", value) for name, value in trainer.items() if "@" not in name}
    return Rates(
        document=document,
        trainer=trainer,
        runtime=own,
        decode=plain(document.decode),
        prefill=plain(document.prefill),
        network=plain(document.network),
        loop=plain(document.loop),
        curves={name: _logarithms(curve) for name, curve in document.curves.items()},
    )


def _logarithms(curve: Curve) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(math.log(x) for x, _ in curve.points), tuple(math.log(y) for _, y in curve.points)


@cache
def rates(kernels: str, gpu: str) -> Rates:
    """Coefficients that a spec names; auto: the GPU's. Raises CatalogError: unknown, or of another GPU."""
    document = catalog.kernels(gpu if kernels == "auto" else kernels)
    if document.gpu != gpu:
        raise catalog.CatalogError(
            f"kernels {kernels} are of GPU {document.gpu}, the cluster has {gpu}", f"kernels: auto, or a file of {gpu}"
        )
    return rates_of(document)


def of(kernels: str, gpu: Gpu) -> Rates:
    """`rates` by GPU."""
    return rates(kernels, gpu.name)
