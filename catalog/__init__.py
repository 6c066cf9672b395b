"""What the world is like, as data: models, GPUs and clusters, each value with its source."""

from prlc.catalog.errors import CatalogError
from prlc.catalog.facts import ModelFacts, facts
from prlc.catalog.load import cluster, gpu, model, names
from prlc.schema.hardware import Cluster, Gpu, Node
from prlc.schema.model import Model

__all__ = ["CatalogError", "Cluster", "Gpu", "Model", "ModelFacts", "Node", "cluster", "facts", "gpu", "model", "names"]
