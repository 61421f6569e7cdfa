"""A trained model on one graph."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from canet.data.graph import Graph
from canet.models.base import Fitted
from canet.nn.model import Prediction
from canet.reading.pieces import Part
from canet.reading.prepared import PreparedGraph


@dataclass(eq=False)
class Reader:
    """A trained model on one graph, which is checked and normalised once for all predictions."""

    model: Fitted
    graph: PreparedGraph
    y: object = None  # labels of the graph as passed by the user

    @property
    def user_graph(self) -> Graph:
        return self.graph.user_graph

    def read(self, nodes: Tensor | None = None) -> Prediction:
        """Predict all nodes, or the nodes with ids $[n]$; see `Fitted.read`."""
        return self.model.read(self.graph, nodes)

    def parts(self, nodes: Tensor | None = None) -> Iterator[Part]:
        """Predict as `read`, some nodes at a time; see `Fitted.parts`."""
        return self.model.parts(self.graph, nodes)
