"""What was read of a graph, all but its features, before any of it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from canet.data.graph_files.cells import as_numbers, as_seconds, as_text, is_empty
from canet.data.graph_files.column_checks import Refuse
from canet.data.graph_files.columns import Encoding

SPLITS = {"train": "train", "valid": "val", "val": "val", "validation": "val", "test": "test"}
"""What a split column may say → whose mask it is; an empty cell is none."""


@dataclass
class GraphParts:
    """Numpy arrays as they were found.

    Args:
        num_nodes: N.
        edge_index: Rows of source and target nodes $[2, E]$.
        node_id: The owner's ids $[N]$, integers or strings.
        columns: `y`, `environment`, `time` and `batch` $[N]$, those that there are.
        masks: `train_mask`, `val_mask` and `test_mask` $[N]$, if there is a split.
        dates: Whether times were written as dates; they are seconds since 1970.
    """

    num_nodes: int
    edge_index: np.ndarray
    node_id: np.ndarray
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    dates: bool = False

    def add_time(self, cells: np.ndarray, name: str, path: Path, refuse: Refuse) -> None:
        """Take in times $[N]$, numbers or dates; NaN where a cell is empty."""
        times = as_numbers(cells)
        if times is None:
            times, self.dates = as_seconds(cells), True
        if times is not None:
            self.columns["time"] = times
            return
        filled = np.flatnonzero(~is_empty(cells)).tolist()
        read = as_seconds if as_numbers(cells[filled[:1]]) is None else as_numbers
        row = next(row for row in filled if read(cells[[row]]) is None)
        refuse(
            f"'{path}' has {str(cells[row])[:40]!r} in column '{name}' (row {row + 1:,}): times "
            "are all numbers, or all ISO dates such as 2024-01-31"
        )

    def with_features(self, x: Tensor, encoding: Encoding | None) -> Data:
        """The graph with its features $[N, D]$ and how these were made."""
        data = Data(
            x=x,
            edge_index=torch.from_numpy(self.edge_index),
            num_nodes=self.num_nodes,
            node_id=self.node_id,
            **self.columns,
        )
        for name, mask in self.masks.items():
            data[name] = torch.from_numpy(mask)
        if encoding is not None:
            data.encoding = encoding
        return data


def read_split(cells: np.ndarray, name: str, path: Path, refuse: Refuse) -> dict[str, np.ndarray]:
    """The masks of a split column; what is neither a set nor empty is refused, and in none."""
    texts = as_text(cells).tolist()
    plain = {text: text.strip().lower() for text in set(texts)}
    words = np.array([plain[text] for text in texts], dtype=object)
    found = {f"{word}_mask": np.zeros(len(cells), dtype=bool) for word in ("train", "val", "test")}
    for word in set(words.tolist()) - {""}:
        if word in SPLITS:
            found[f"{SPLITS[word]}_mask"] |= words == word
        else:
            row = int(np.flatnonzero(words == word)[0]) + 1
            refuse(
                f"'{path}' has {word[:40]!r} in column '{name}' (row {row:,}): a split is train, "
                "valid or test, or empty; rename the column if it is a feature"
            )
    return found
