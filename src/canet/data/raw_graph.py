"""A graph with the interface of PyG's `Data`, without the slow import of PyG (three seconds)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor
    from torch_geometric.data import Data

MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
"""Split → its mask in a graph."""


class RawGraph:
    """The part of PyG's `Data` that this package uses: columns as attributes, such as `data.x`."""

    def __init__(self, **columns: object) -> None:
        vars(self).update(columns)

    if TYPE_CHECKING:  # columns have any name

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: object) -> None: ...

    def __contains__(self, name: str) -> bool:
        return name in vars(self)

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __setitem__(self, name: str, value: object) -> None:
        setattr(self, name, value)

    def get(self, name: str, default: object = None) -> Any:
        """Return a column, or the default if it is missing."""
        return vars(self).get(name, default)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


GraphObject: TypeAlias = Union["Data", RawGraph]  # the accepted types of a graph in memory
GraphLike: TypeAlias = Union["Data", RawGraph, str, Path, tuple[Any, Any], Any]
"""A graph of PyG or networkx, its path, or its tables of nodes and edges."""
NodeSet: TypeAlias = Union["Tensor", "np.ndarray", Sequence[int], Sequence[bool], Sequence[str]]
"""Rows or names of nodes $[n]$, or a mask $[N]$."""
Column: TypeAlias = Union["Tensor", "np.ndarray", Sequence[Any]]  # a value for each node $[N]$
