"""`NodeClassifier`: fit, predict, save and load a model for your graph."""

from canet.estimator.classifier import NodeClassifier, load
from canet.estimator.on_graph import OnGraph

__all__ = ["NodeClassifier", "OnGraph", "load"]
