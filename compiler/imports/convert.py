"""Values of prime-rl as values of a run spec: one function a conversion, named in the table of mapping.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class WrongValue(ValueError):
    """A value of the wrong type or size for its key: the input is refused."""


class NotSupported(ValueError):
    """A value that prime-rl takes and prlc has nothing for."""


Known = Mapping[str, Any]  # values of other keys by their name in the table, and the spec's pins by their path
Convert = Callable[[Any, Known], Any]


def count(value: Any, known: Known) -> int:
    """A whole number of at least 1. Raises WrongValue."""
    return _whole(value, 1)


def count_or_zero(value: Any, known: Known) -> int:
    """A whole number of at least 0. Raises WrongValue."""
    return _whole(value, 0)


def degree(value: Any, known: Known) -> int | str:
    """A degree of the mesh, or auto."""
    return "auto" if value == "auto" else _whole(value, 1)


def flag(value: Any, known: Known) -> bool:
    """A boolean. Raises WrongValue."""
    if not isinstance(value, bool):
        raise WrongValue("takes true or false")
    return value


def groups(value: Any, known: Known) -> int:
    """Rollouts in flight as groups in flight, rounded down, at least one."""
    return max(1, _whole(value, 1) // _needed(known, "group_size", "algorithm.group_size"))


def island(value: Any, known: Known) -> int:
    """Shards of an FSDP island of `value` nodes: world = dp_replicate x dp_shard x cp, so nodes x GPUs / cp."""
    cp = known.get("cp", known.get("trainer.parallel.cp", 1))
    gpus = _whole(value, 1) * _needed(known, "gpus_per_node")
    if not isinstance(cp, int) or gpus % cp:
        raise WrongValue(f"holds {gpus} GPUs, which cp {cp} does not divide")
    return gpus // cp


def infer_nodes(value: Any, known: Known) -> int:
    """All nodes of the run. Raises NotSupported when the trainer's are not told."""
    engines = _whole(value, 1)
    trainer = known.get("trainer.nodes")
    if not isinstance(trainer, int):
        raise NotSupported(f"a spec counts all nodes: --set trainer.nodes=T makes it T + {engines}")
    return trainer + engines


def offload(value: Any, known: Known) -> str:
    """A boolean as the place of the optimizer's state."""
    return "cpu" if flag(value, known) else "none"


def fp8_flag(value: Any, known: Known) -> str:
    """The boolean of 0.6.0 as the trainer's precision."""
    return "fp8" if flag(value, known) else "bf16"


def fp8_name(value: Any, known: Known) -> str:
    """fp8. Raises NotSupported for every other quantisation."""
    if value != "fp8":
        raise NotSupported("precisions are fp32, bf16 and fp8")
    return "fp8"


def fp8_detail(value: Any, known: Known) -> str:
    """The key of a quantisation table that names its kind. Raises NotSupported for its other keys."""
    if value in ("fp8", "mxfp8"):
        return fp8_name(value, known)
    raise NotSupported("fp8 has one form here: trainer.precision")


def mode(value: Any, known: Known) -> str:
    """training_mode of 0.6.0. Raises NotSupported for distillation and SFT."""
    if value != "rl":
        raise NotSupported("the algorithm is grpo")
    return "grpo"


def run_dir(value: Any, known: Known) -> str:
    """output_dir and run.dir as one folder."""
    if not isinstance(value, str) or not value:
        raise WrongValue("takes a path")
    return "/".join(str(known[key]).rstrip("/") for key in ("output_dir", "run.dir") if known.get(key))


FUNCTIONS: dict[str, Convert] = {
    f.__name__: f
    for f in (count, count_or_zero, degree, flag, groups, island, infer_nodes, offload, fp8_flag, fp8_name, fp8_detail,
              mode, run_dir)
}  # fmt: skip


def _whole(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise WrongValue(f"takes a whole number of at least {least}")
    return value


def _needed(known: Known, key: str, path: str = "") -> int:
    value = known.get(key, known.get(path))
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise NotSupported(f"needs {key}" + (f": --set {path}=N" if path else ""))
    return value
