"""JSON Schemas (2020-12) of the documents, from their dataclasses.

`python -m prlc.schema.generate` writes them beside this file. Editors complete and check documents with them;
`prlc` itself checks with `prlc.schema.check`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from prlc.schema import codec
from prlc.schema.codec import UNIT_EXAMPLES, UNITS
from prlc.schema.compat import Compat
from prlc.schema.hardware import Cluster, Gpu
from prlc.schema.kernels import Kernels
from prlc.schema.memory import EngineMemory, TrainerMemory
from prlc.schema.model import Model
from prlc.schema.orchestrator import OrchestratorConfig
from prlc.schema.plan import Plan
from prlc.schema.preflight import PreflightConfig
from prlc.schema.run import RunSpec
from prlc.schema.topology import Topology
from prlc.schema.trainer import TrainerConfig

DOCUMENTS: dict[str, type[Any]] = {
    "run": RunSpec,
    "model": Model,
    "gpu": Gpu,
    "cluster": Cluster,
    "kernels": Kernels,
    "trainer-memory": TrainerMemory,
    "engine-memory": EngineMemory,
    "compat": Compat,
    "plan": Plan,
    "topology": Topology,
    "trainer": TrainerConfig,
    "orchestrator": OrchestratorConfig,
    "preflight": PreflightConfig,
}
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document by its name in DOCUMENTS. Raises KeyError for another name."""
    cls = DOCUMENTS[name]
    found: dict[str, type[Any]] = {}
    body = _object(cls, found)
    definitions: dict[str, Any] = {}
    while missing := sorted(set(found) - set(definitions)):
        for key in missing:
            definitions[key] = _object(found[key], found)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{name}.schema.json"}
    tail = {"$defs": dict(sorted(definitions.items()))} if definitions else {}
    return {**head, "title": cls.__name__, **body, **tail}


def files() -> dict[str, str]:
    """File name to text of every schema."""
    return {f"{name}.schema.json": json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n" for name in DOCUMENTS}


def _object(cls: type[Any], found: dict[str, type[Any]]) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    fields = dataclasses.fields(cls)
    return {
        "description": " ".join((cls.__doc__ or "").split()),
        "type": "object",
        "properties": {f.name: _field(hints[f.name], f, found) for f in fields},
        "required": [f.name for f in fields if codec.required(f)],
        "additionalProperties": False,
    }


def _field(kind: Any, item: dataclasses.Field[Any], found: dict[str, type[Any]]) -> dict[str, Any]:
    metadata = item.metadata
    made: dict[str, Any] = {"description": metadata["doc"], **_kind(kind, found)}
    # without effect on the branches of an anyOf that are no number, or no text
    made |= {key: metadata[key] for key in ("minimum", "maximum", "pattern") if metadata.get(key) is not None}
    if metadata.get("examples"):
        made["examples"] = list(metadata["examples"])
    if item.default is not dataclasses.MISSING:
        made["default"] = codec.encode_as(kind, item.default)
    elif item.default_factory is not dataclasses.MISSING:
        made["default"] = codec.encode_as(kind, item.default_factory())
    return made


def _kind(kind: Any, found: dict[str, type[Any]]) -> dict[str, Any]:
    unit, origin, args = codec.unit_of(kind), get_origin(kind), get_args(kind)
    if unit:
        names = "|".join(re.escape(name) for name in UNITS[unit])
        pattern = rf"^\s*\d+(\.\d+)?(e[+-]?\d+)?\s*({names})\s*$"
        return {"type": "string", "pattern": pattern, "x-unit": unit, "examples": list(UNIT_EXAMPLES[unit])}
    if kind is Any:
        return {}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_kind(option, found) for option in args]}
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": _kind(args[0], found)}
        items = [_kind(arg, found) for arg in args]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _kind(args[1], found)}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if found.setdefault(kind.__name__, kind) is not kind:
            raise TypeError(f"two classes of one document are called {kind.__name__}")
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return {"type": PLAIN[kind]}


def main() -> int:
    """Write the files whose text changed; print their names."""
    folder = Path(__file__).parent
    for name, text in files().items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
