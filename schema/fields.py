"""How a document's field is declared: its type, its unit, its description and its bounds.

Every document of prlc is a frozen dataclass. The JSON Schema beside it is made from the dataclass
(`python -m prlc.schema.generate`), so that the two cannot disagree; a test holds the files to it.
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Annotated, Any, Literal

# In YAML and JSON these are strings with a unit ("80GiB", "5min"); in the dataclass they are numbers.
Bytes = Annotated[int, "bytes"]
Seconds = Annotated[float, "seconds"]
BytesPerSecond = Annotated[float, "bytes_per_second"]
FlopsPerSecond = Annotated[float, "flops_per_second"]

Auto = Literal["auto"]


def doc(
    text: str,
    *,
    default: Any = MISSING,
    factory: Any = MISSING,
    minimum: float | None = None,
    maximum: float | None = None,
    pattern: str | None = None,
    examples: tuple[Any, ...] = (),
) -> Any:
    """Declare a dataclass field with its description and bounds; without a default it is required."""
    metadata = {"doc": text, "minimum": minimum, "maximum": maximum, "pattern": pattern, "examples": examples}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata)
    if default is not MISSING:
        return field(default=default, metadata=metadata)
    return field(metadata=metadata)
