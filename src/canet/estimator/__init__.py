"""`NodeClassifier`: fit, predict, save and load a model for your graph."""

from canet.estimator.classifier import NodeClassifier, load

__all__ = ["NodeClassifier", "load"]
