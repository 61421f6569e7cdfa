"""Models: blocks of a graph, propagation, environment estimators, CaNet and plain backbones."""

from canet.nn.backbones import BACKBONES, GAT, GCN, Backbone
from canet.nn.blocks import Block, Graph, Operator, ReceptiveField
from canet.nn.canet import CaNet
from canet.nn.environment import Environment, EnvironmentEstimator
from canet.nn.model import Features, GraphModel, Prediction
from canet.nn.sparse_matrix import SparseMatrix

__all__ = [
    "BACKBONES",
    "GAT",
    "GCN",
    "Backbone",
    "Block",
    "CaNet",
    "Environment",
    "EnvironmentEstimator",
    "Features",
    "Graph",
    "GraphModel",
    "Operator",
    "Prediction",
    "ReceptiveField",
    "SparseMatrix",
]
