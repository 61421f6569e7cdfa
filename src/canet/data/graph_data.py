"""A graph as named columns, read as PyG's `Data` is, without PyG's import of three seconds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch_geometric.data import Data


class GraphData:
    """The part of PyG's `Data` that this package reads: columns by name, as `data.x`."""

    def __init__(self, **columns: Any) -> None:
        vars(self).update(columns)

    if TYPE_CHECKING:  # any column may be read and set

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def get(self, name: str, default: Any = None) -> Any:
        """A column, or the default where there is none."""
        return vars(self).get(name, default)

    def to_dict(self) -> dict[str, Any]:
        """All columns by name."""
        return dict(vars(self))


AnyGraph: TypeAlias = "Data | GraphData"
"""What is read as a graph everywhere."""


def is_graph(data: object) -> bool:
    """Whether this is a graph; PyG is not imported to find out."""
    pyg = sys.modules.get("torch_geometric.data")
    return isinstance(data, GraphData) or (pyg is not None and isinstance(data, pyg.Data))
