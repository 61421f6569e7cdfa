"""A model for your graph, in scikit-learn's shape: fit, predict, save, load."""

from canet.estimator.classifier import NodeClassifier, load

__all__ = ["NodeClassifier", "load"]
