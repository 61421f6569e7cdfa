"""What a model remembers of the graph it was trained on: a sample, to tell what is unlike it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from canet.data.task import ShiftTask
from canet.data.user_graph import UserGraph
from canet.estimator.column_screen import ColumnScreen, screen_columns
from canet.methods import Method
from canet.training.inference import forward
from canet.util.sparse import from_scipy, to_scipy

MOST_NODES = 5_000
NEIGHBOURS = 10
ROWS_AT_ONCE = 4_096
SCREEN = "screen."
"""What names of a screen's tensors start with."""
LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Reference:
    """A sample of training and validation nodes, at most 5,000 of each, on the CPU.

    Args:
        x: Features $[r, D]$ of training nodes, dense or sparse CSR.
        embedding: Their representations $[r, H]$.
        degree: Their numbers of incoming edges $[r]$.
        environment: Their environments $[r]$, -1 where unknown; empty without labels for them.
        valid_logits, valid_y, valid_embedding: Logits $[v, C]$, class ids $[v]$ and
            representations $[v, H]$ of validation nodes.
        train_label_counts: Training nodes $[C]$ of each class.
        homophily: Share of the edges between training nodes that join equal labels, a scalar; NaN
            where there is no such edge.
        screen: Which columns move between groups of the training nodes; None where there are too
            few of them, and in models that were saved before it was kept.
    """

    x: Tensor
    embedding: Tensor
    degree: Tensor
    environment: Tensor
    valid_logits: Tensor
    valid_y: Tensor
    valid_embedding: Tensor
    train_label_counts: Tensor
    homophily: Tensor
    screen: ColumnScreen | None = None

    def unlike_training(self, embedding: Tensor) -> Tensor:
        r"""How unlike training each node is $[n]$, for representations $[n, H]$.

        The distance $d(v)$ to the tenth nearest training node, of representations scaled to length
        one (Sun et al., ICML '22), as its rank among validation nodes $u$:
        $\frac{1}{|V|} |\{u : d(u) < d(v)\}|$. So 0.95 is further from all training nodes than 95 %
        of the validation nodes are.
        """
        within = self._distance(self.valid_embedding).sort().values
        rank = torch.searchsorted(within, self._distance(embedding))
        return rank.double() / max(1, within.numel())

    def tensors(self) -> dict[str, Tensor]:
        """All of it as dense tensors, as files hold them."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        del named["x"]
        if (screen := named.pop("screen")) is not None:
            named |= {f"{SCREEN}{f.name}": getattr(screen, f.name) for f in fields(screen)}
        if self.x.layout != torch.sparse_csr:
            return named | {"x": self.x}
        return named | {
            "x.crow_indices": self.x.crow_indices(),
            "x.col_indices": self.x.col_indices(),
            "x.values": self.x.values(),
            "x.shape": torch.tensor(self.x.shape),
        }

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], num_features: int, num_classes: int, hidden: int
    ) -> Reference:
        """The reference whose `tensors` these are, of a model with D, C and H.

        Raises:
            ValueError, TypeError, KeyError, RuntimeError: Not all of them, more, or such as no
                model has.
        """
        parts: dict[str, Any] = {name: t for name, t in tensors.items() if "." not in name}
        if "x" not in parts:
            parts["x"] = torch.sparse_csr_tensor(
                tensors["x.crow_indices"],
                tensors["x.col_indices"],
                tensors["x.values"],
                tuple(tensors["x.shape"].tolist()),
                check_invariants=True,
            )
        screen = {n.removeprefix(SCREEN): t for n, t in tensors.items() if n.startswith(SCREEN)}
        if screen:
            parts["screen"] = ColumnScreen(**screen)
        made = cls(**parts)
        made._check(num_features, num_classes, hidden)
        return made

    def _check(self, num_features: int, num_classes: int, hidden: int) -> None:
        """Refuse tensors of other shapes, types and ranges than `remember` makes them."""
        r, v, groups = self.degree.numel(), self.valid_y.numel(), self.environment.numel()
        values = self.x.values() if self.x.layout == torch.sparse_csr else self.x
        if tuple(self.x.shape) != (r, num_features) or not r or not v or groups not in (0, r):
            raise ValueError("not all of the nodes, or none")
        _check_numbers(values, tuple(values.shape))
        _check_numbers(self.embedding, (r, hidden))
        _check_numbers(self.valid_embedding, (v, hidden))
        _check_numbers(self.valid_logits, (v, num_classes))
        _check_numbers(self.homophily.nan_to_num(0.0), (), 0, 1)
        _check_whole(self.degree, (r,))
        _check_whole(self.environment, (groups,), least=-1)
        _check_whole(self.valid_y, (v,), most=num_classes - 1)
        _check_whole(self.train_label_counts, (num_classes,))
        if self.screen is not None:
            _check_numbers(self.screen.spread, (num_features,), 0)
            _check_numbers(self.screen.share, (num_features,), 0, 1)
            _check_numbers(self.screen.chance.nan_to_num(0.0), (), 0, 1)
            _check_whole(self.screen.num_groups, (), least=1)
            _check_tensor(self.screen.given, (), (torch.bool,), 0, 1)

    def _distance(self, embedding: Tensor) -> Tensor:
        known = _unit(self.embedding)
        k = min(NEIGHBOURS, known.shape[0])
        distances = [
            torch.cdist(_unit(rows), known).topk(k, largest=False).values[:, -1]
            for rows in embedding.split(ROWS_AT_ONCE)
        ]
        # Products round differently for other numbers of rows; what is equally far must tie.
        return torch.cat(distances).round(decimals=6)


def remember(task: ShiftTask, method: Method, seed: int) -> Reference:
    """A sample of a task's training and validation nodes as a trained method sees them."""
    own = UserGraph(task.data.x, task.data.edge_index, task.data.get("batch"))
    train, valid = sample_of(task.train, seed), sample_of(task.valid, seed)
    y = torch.full_like(task.data.y, -1)
    y[task.train] = task.data.y[task.train]
    degree = torch.bincount(own.edge_index[1], minlength=own.num_nodes)
    of_valid = forward(method, own, valid)
    x = rows_of(own.x, train)
    environment = task.data.environment[train] if task.has_environments else train[:0]
    return Reference(
        x=x,
        embedding=forward(method, own, train).embedding,
        degree=degree[train],
        environment=environment,
        valid_logits=of_valid.logits,
        valid_y=task.data.y[valid],
        valid_embedding=of_valid.embedding,
        train_label_counts=torch.bincount(y[task.train], minlength=task.num_classes),
        homophily=homophily(own.edge_index, y),
        screen=screen_columns(x, y[train], environment, method.settings),
    )


def sample_of(nodes: Tensor, seed: int) -> Tensor:
    """At most 5,000 of some node ids, ascending."""
    if nodes.numel() <= MOST_NODES:
        return nodes.sort().values
    chosen = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(seed))
    return nodes[chosen[:MOST_NODES]].sort().values


def rows_of(x: Tensor, nodes: Tensor) -> Tensor:
    """The features of some nodes, in the layout of all."""
    if x.layout != torch.sparse_csr:
        return x[nodes]
    return from_scipy(to_scipy(x)[nodes.numpy()])


def homophily(edge_index: Tensor, y: Tensor) -> Tensor:
    """Share of the edges $[2, E]$ between nodes with labels $[N]$ that join equal ones; or NaN."""
    first, second = y[edge_index]
    proper = (first >= 0) & (second >= 0) & (edge_index[0] != edge_index[1])
    return (first == second)[proper].double().mean()


def _unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows.double(), dim=1)


def _check_whole(
    found: Tensor, shape: tuple[int, ...], least: int = 0, most: int = 2**63 - 1
) -> None:
    _check_tensor(found, shape, (torch.int64,), least, most)


def _check_numbers(
    found: Tensor, shape: tuple[int, ...], least: float = -LARGEST, most: float = LARGEST
) -> None:
    _check_tensor(found, shape, (torch.float32, torch.float64), least, most)


def _check_tensor(
    found: Tensor,
    shape: tuple[int, ...],
    types: tuple[torch.dtype, ...],
    least: float,
    most: float,
) -> None:
    """Refuse a tensor of another shape or type, with a number beyond its bounds, or with NaN."""
    if tuple(found.shape) != shape or found.dtype not in types:
        raise ValueError(f"{found.dtype} of shape {tuple(found.shape)}")
    if not ((found >= least) & (found <= most)).all():
        raise ValueError(f"numbers beyond {least} to {most}")
