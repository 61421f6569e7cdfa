"""Models: blocks of a graph, propagation, environment estimators, CaNet and plain backbones."""

from canet.nn.backbones import BACKBONES, Backbone, get_backbone
from canet.nn.backbones.gat import GAT
from canet.nn.backbones.gcn import GCN
from canet.nn.blocks import Block, Operator, ReceptiveField
from canet.nn.canet import CaNet
from canet.nn.environment import Environment, EnvironmentEstimator
from canet.nn.layer import Branches
from canet.nn.model import Features, GraphModel, PlainModel, Prediction, ShiftedFeatures
from canet.nn.normalised import NormalisedGraph
from canet.nn.sparse_matrix import SparseMatrix
from canet.util.plugins import add_plugins

__all__ = [
    "BACKBONES",
    "GAT",
    "GCN",
    "Backbone",
    "Block",
    "Branches",
    "CaNet",
    "Environment",
    "EnvironmentEstimator",
    "Features",
    "GraphModel",
    "NormalisedGraph",
    "Operator",
    "PlainModel",
    "Prediction",
    "ReceptiveField",
    "ShiftedFeatures",
    "SparseMatrix",
    "get_backbone",
]

add_plugins("canet.backbones", BACKBONES, Backbone)
