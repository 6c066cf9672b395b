"""What the world is like, as data: models, GPUs and clusters, each value with its source."""

from prlc.catalog.errors import CatalogError
from prlc.catalog.facts import ModelFacts, facts
from prlc.catalog.kv import KvBytes, KvDtype, kv_bytes
from prlc.catalog.load import cluster, gpu, kernels, measured, model, names, text
from prlc.catalog.replay import ReplayBytes, replay_bytes
from prlc.schema.hardware import Cluster, Gpu, Node
from prlc.schema.kernels import Kernels
from prlc.schema.model import Model

__all__ = [
    "CatalogError",
    "Cluster",
    "Gpu",
    "Kernels",
    "KvBytes",
    "KvDtype",
    "Model",
    "ModelFacts",
    "Node",
    "ReplayBytes",
    "cluster",
    "facts",
    "gpu",
    "kernels",
    "kv_bytes",
    "measured",
    "model",
    "names",
    "replay_bytes",
    "text",
]
