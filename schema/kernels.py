"""How fast kernels, networks and frameworks are: catalog/kernels/*.yaml, made by `prlc calibrate` from measurements.

The formulas of the forecast stand in the compiler; their coefficients stand here, each with source and residual.
"""

from __future__ import annotations

from dataclasses import dataclass

from prlc.schema.fields import doc


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """One number that a formula uses."""

    value: float = doc("Its value.", minimum=0)
    unit: str = doc("x (over the roofline of the catalog's GPU), s, share, bytes/s, tokens.")
    source: str = doc("Measurements that it is fitted to, or what it is taken from.")
    spread: float | None = doc(
        "How far a fit may move it: relative standard deviation; absent: it is held.", default=None, minimum=0
    )
    residual: float | None = doc(
        "Mean absolute relative error of the rows that it is fitted to; absent: not fitted.", default=None, minimum=0
    )


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A measured function of one size, interpolated between its points in logarithms, constant outside."""

    x: str = doc("What the first number of a point is.")
    unit: str = doc("Unit of the second.")
    points: tuple[tuple[float, float], ...] = doc("(x, value), x ascending.")
    source: str = doc("Measurements.")


@dataclass(frozen=True, kw_only=True)
class Band:
    """What measured / predicted was for rows of groups that a fit did not see."""

    low: float = doc("5th percentile of that ratio, widened for the number of rows.", minimum=0)
    high: float = doc("95th percentile.", minimum=0)
    error: float = doc("Mean absolute relative error.", minimum=0)
    rows: int = doc("Rows that it rests on; 0: an assumption.", minimum=0)
    source: str = doc("Groups of those rows, or why it is assumed.")


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Where the data ends. Beyond it a term is extrapolated, and the plan says so by the term's name."""

    low_latency_ep: int = doc("Widest expert-parallel group with low-latency all-to-all rows.", minimum=1)
    normal_ep: int = doc("Widest expert-parallel group with normal all-to-all rows.", minimum=1)
    prefix: int = doc("Longest prefix with prefill rows, in tokens.", minimum=0)
    trainer_nodes: int = doc("Most nodes of a training row.", minimum=0)
    trainer_attention: tuple[str, ...] = doc("attention_kind of models with training rows.", default=())
    engine_attention: tuple[str, ...] = doc("attention_kind of models with decode rows.", default=())
    trainer_gpus: tuple[str, ...] = doc("GPUs of the training rows.", default=())
    engine_gpus: tuple[str, ...] = doc("GPUs of the decode and prefill rows.", default=())
    engine_tp: int = doc("Most tensor-parallel ranks of a decode row.", default=8, minimum=1)


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Coefficients of one GPU and its software."""

    name: str = doc("Catalog name, or the name that calibration gave.")
    gpu: str = doc("Catalog name of the GPU.")
    software: dict[str, str] = doc("Role -> software and versions whose rows the coefficients rest on.")
    trainer: dict[str, Coefficient] = doc("Terms of the training step.")
    decode: dict[str, Coefficient] = doc("Terms of a decode step; name@framework differs from vLLM's.")
    prefill: dict[str, Coefficient] = doc("Terms of a prefill.")
    network: dict[str, Coefficient] = doc("Collectives, all-to-all, weight sync, KV transfer.")
    loop: dict[str, Coefficient] = doc("The loop around: cache hits, imbalance, packing.")
    curves: dict[str, Curve] = doc("Functions of a size.", factory=dict)
    bands: dict[str, Band] = doc("Quantity -> its error on rows that a fit did not see.")
    domain: Domain = doc("Where the data ends.")
    sources: tuple[str, ...] = doc("Where the rows come from.", default=())
