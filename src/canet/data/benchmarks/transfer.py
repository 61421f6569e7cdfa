"""Data sets of several graphs: a model is trained on one and tested on each of the others.

The protocol is the name of the training graph. All graphs have the same features and classes, and
there are no edges between graphs.
"""

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from canet.data.benchmarks.dataset import Dataset, Request
from canet.data.benchmarks.files import RawFiles, obtain
from canet.data.task import ShiftTask


class TransferDataset(Dataset):
    """Base class of data sets with one graph per region, school or year, which a subclass reads."""

    def read(self, raw: RawFiles, protocol: str) -> dict[str, Data]:
        """Return the graphs by name. The protocol is the name of the training graph."""
        return {name: self.read_graph(raw, name) for name in self.protocols}

    def read_graph(self, raw: RawFiles, name: str) -> Data:
        """Return a graph with `x` $[n, D]$, `edge_index` $[2, E]$ and `y` $[n]$."""
        raise NotImplementedError

    def load(self, request: Request) -> ShiftTask:
        graphs = self.read(obtain(self.files, request.data_root), request.protocol)
        joined = Batch.from_data_list(list(graphs.values()))
        sets = {
            name: ((joined.batch == number) & (joined.y >= 0)).nonzero().flatten()
            for number, name in enumerate(graphs)
        }
        source = sets.pop(request.protocol)
        generator = torch.Generator().manual_seed(request.data_seed)
        return self.task_from_splits(
            request,
            split_by_class(source, joined.y[source], generator),
            data=Data(joined.x, joined.edge_index, y=joined.y, batch=joined.batch),
            test_ood=sets,
            in_distribution=joined.batch == list(graphs).index(request.protocol),
        )


def split_by_class(
    nodes: Tensor, y: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Split node ids $[n]$ with labels $[n]$ at random into train, valid and test.

    Each class is split 60/20/20, rounded so that a class with a single node is in train.
    """
    order = torch.randperm(nodes.numel(), generator=generator)
    nodes, y = nodes[order], y[order]
    parts: tuple[list[Tensor], ...] = ([], [], [])
    for label in y.unique():
        members = nodes[y == label]
        ends = [-(-share * members.numel() // 5) for share in (3, 4)]
        for part, chosen in zip(parts, members.tensor_split(ends), strict=True):
            part.append(chosen)
    train, valid, test = (torch.cat(part).sort().values for part in parts)
    return train, valid, test
