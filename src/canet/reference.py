"""What a model remembers of the graph it was trained on: a sample, to tell what is unlike it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from canet.data.own import OwnGraph
from canet.data.task import ShiftTask
from canet.errors import CanetError
from canet.methods import InterventionSettings, Method, Settings, TrainingView
from canet.methods.interventions import (
    FEWEST_OF_A_CLASS,
    LARGE_EFFECT,
    groups_of,
    spread_between,
)
from canet.nn import SparseMatrix
from canet.sparse import from_scipy, to_scipy
from canet.training.inference import forward

MOST_NODES = 5_000
NEIGHBOURS = 10
ROWS_AT_ONCE = 4_096
MOST_ENVIRONMENTS = 50
"""Given environments that are groups of a screen; more have few nodes each."""
CHANCE_DRAWS = 5


@dataclass(frozen=True)
class ColumnScreen:
    r"""Which feature columns move between groups of training nodes of the same class.

    Nothing of validation or test nodes is in it. Groups are found in the features, so that those
    of the largest variance move between them; a share tells no cause.

    Args:
        spread: Standard deviation $[D]$ of the groups' means, less what sampling gives.
        share: Of the variance within a class that lies between groups $[D]$, η².
        chance: The largest share of all columns, a scalar, where the nodes of each class are dealt
            to groups at random.
        num_groups: How many groups there are, a scalar.
        given: Whether groups are environments that were given, a scalar; else they were inferred.
    """

    spread: Tensor
    share: Tensor
    chance: Tensor
    num_groups: Tensor
    given: Tensor

    @property
    def clear(self) -> Tensor:
        """Mask $[D]$ of the columns whose effect is large, and larger than chance makes it."""
        return (self.share >= LARGE_EFFECT) & (self.share > self.chance)


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
            named |= {f"screen.{f.name}": getattr(screen, f.name) for f in fields(screen)}
        if self.x.layout != torch.sparse_csr:
            return named | {"x": self.x}
        return named | {
            "x.crow_indices": self.x.crow_indices(),
            "x.col_indices": self.x.col_indices(),
            "x.values": self.x.values(),
            "x.shape": torch.tensor(self.x.shape),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Reference:
        """The reference whose `tensors` these are."""
        parts: dict[str, Any] = {name: t for name, t in tensors.items() if "." not in name}
        if "x" not in parts:
            parts["x"] = torch.sparse_csr_tensor(
                tensors["x.crow_indices"],
                tensors["x.col_indices"],
                tensors["x.values"],
                tuple(tensors["x.shape"].tolist()),
                check_invariants=True,
            )
        place = "screen."
        if screen := {n.removeprefix(place): t for n, t in tensors.items() if n.startswith(place)}:
            parts["screen"] = ColumnScreen(**screen)
        return cls(**parts)

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
    own = OwnGraph(task.data.x, task.data.edge_index, task.data.get("batch"))
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


def screen_columns(
    x: Tensor, y: Tensor, environment: Tensor, settings: Settings
) -> ColumnScreen | None:
    """Which columns of features $[r, D]$ move between groups of nodes with class ids $[r]$.

    Groups are those of the interventions in the method's settings; where it has none, the
    environments $[r]$ where every node has one and there are 2 to 50 of them; else inferred from
    the features.

    Returns:
        None where nodes or columns are too few for groups, or no class has nodes enough in two of
        them. A screen is an extra: a model is fitted whatever comes of it.
    """
    nodes = torch.arange(y.numel())
    features = SparseMatrix.from_torch(x) if x.layout == torch.sparse_csr else x
    view = TrainingView(
        x=features,
        edge_index=torch.empty(2, 0, dtype=torch.long),
        observed=nodes,
        train=nodes,
        y=y,
        read=lambda some: (features, ()),
        field=lambda: nodes,
        environment=environment if environment.numel() else None,
    )
    chosen = _group_settings(settings, environment)
    random = torch.Generator().manual_seed(0)
    try:
        with warnings.catch_warnings(action="ignore"):
            group, count = groups_of(chosen, view)
            moved = spread_between(features, nodes, y, group, count)
            dealt = [_dealt(group, y, random) for _ in range(CHANCE_DRAWS)]
            shares = [spread_between(features, nodes, y, other, count).share for other in dealt]
    except (CanetError, RuntimeError, ValueError):
        return None
    sizes = torch.bincount(y * count + group, minlength=(int(y.max()) + 1) * count)
    compared = (sizes.view(-1, count) >= FEWEST_OF_A_CLASS).sum(dim=1) >= 2
    if not compared.any() or not torch.stack(moved).isfinite().all():
        return None
    return ColumnScreen(
        spread=moved.spread,
        share=moved.share,
        chance=torch.stack([share.max() for share in shares]).median(),
        num_groups=torch.tensor(count),
        given=torch.tensor(chosen.interventions == "given"),
    )


def _group_settings(settings: Settings, environment: Tensor) -> InterventionSettings:
    """How the nodes of a screen are grouped."""
    if not isinstance(settings, InterventionSettings):
        settings = InterventionSettings()
    if settings.interventions != "none":
        return settings
    ids = environment.unique()
    given = 2 <= ids.numel() <= MOST_ENVIRONMENTS and bool(ids[0] >= 0)
    return replace(settings, interventions="given" if given else "inferred")


def _dealt(group: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
    """Groups $[n]$, exchanged at random between nodes of the same class $[n]$."""
    shuffled = torch.randperm(y.numel(), generator=random)
    others = shuffled[y[shuffled].argsort(stable=True)]
    dealt = torch.empty_like(group)
    dealt[y.argsort(stable=True)] = group[others]
    return dealt


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
