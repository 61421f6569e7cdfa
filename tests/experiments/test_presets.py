from dataclasses import asdict

import pytest

from canet.data.catalog import CATALOG
from canet.errors import CanetError
from canet.experiments.presets import preset
from canet.methods import BACKBONES, METHODS
from canet.methods.canet import CaNetSettings

# The authors' published settings of CaNet: weight decay, τ, dropout, estimator, propagation,
# direction, layers, hidden. The last two gcn columns that attention does not read are defaults.
PUBLISHED = """
cora      gcn  5e-5  1  0.2  graph  symmetric  along    2  64
citeseer  gcn  5e-5  1  0.1  graph  symmetric  along    2  64
pubmed    gcn  5e-5  2  0.2  graph  symmetric  along    2  64
arxiv     gcn  5e-4  1  0.2  node   sum        against  2  64
twitch    gcn  5e-5  3  0    graph  symmetric  along    2  64
elliptic  gcn  1e-3  1  0.2  node   sum        against  3  32
cora      gat  0     3  0.2  graph  symmetric  along    2  64
citeseer  gat  0     3  0.2  graph  symmetric  along    2  64
pubmed    gat  5e-5  1  0.2  graph  symmetric  along    2  64
arxiv     gat  5e-5  2  0.2  graph  symmetric  against  2  64
twitch    gat  5e-5  2  0    graph  symmetric  along    2  64
elliptic  gat  5e-4  2  0.1  graph  symmetric  against  2  64
"""
