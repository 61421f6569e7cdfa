"""What a model relies on: change a part of its input, and count the predictions that flip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Tensor
from torch_geometric.data import Data

from canet.diagnosis.blocks import Blocks
from canet.diagnosis.estimate import Estimate, normal, share, wilson
from canet.diagnosis.graph import Diagnosed, Matrix, Model, as_features, seed_of
from canet.diagnosis.perturb import draw_donors, drop_edges, replace_features, rewire

FOLDS = 20  # a node's own features are changed with those of 5 % of the nodes at a time
ALL, OWN, OTHERS = "all features", "own features", "others' features"
Kind = Literal["features", "edges", "node"]
Tick = Callable[[str], None]
"""Told before each pass over the graph what it is for."""


@dataclass(frozen=True)
class Effect:
    """What one change does to the predictions.

    Args:
        name: The block, or what was done to the edges.
        kind: What was changed.
        columns: How many columns were changed.
        flipped: Percent of the predictions that are others than before.
        accuracy: Percent that are right after the change; None without labels.
        lost: Points of accuracy lost, each node compared with itself; None without labels.
    """

    name: str
    kind: Kind
    columns: int
    flipped: Estimate
    accuracy: Estimate | None
    lost: Estimate | None


@dataclass(frozen=True)
class Reliance:
    """What a model relies on, on one graph.

    Args:
        nodes: How many predictions were watched.
        scored: How many of the nodes have a label that they were not trained on.
        accuracy: Percent of these that are right on the graph as it is; None without labels.
        donors: Where other values come from: `other nodes`, or `other environments`.
        repeats: Draws of each random change.
        features: A feature block each, the one that flips most first.
        everything: All features at once.
        edges: Rewired, half dropped, dropped.
        own: A node's own features.
        others: The features of all other nodes, which it reads along edges.
    """

    nodes: int
    scored: int
    accuracy: Estimate | None
    donors: str
    repeats: int
    features: list[Effect]
    everything: Effect
    edges: list[Effect]
    own: Effect
    others: Effect


def reliance(
    model: Model, graph: Diagnosed, blocks: Blocks, repeats: int = 10, tick: Tick = lambda _: None
) -> Reliance:
    """How predictions on a graph depend on feature blocks, edges, and whose features they are.

    A block's columns get the values of one other node, all together, so that what is true within
    a block stays true, while what ties the block to the label, to other blocks and to the
    neighbourhood is cut; in a graph with several environments the other node comes from another
    one. All nodes are changed at once: a flip tells of the block in the node's whole
    neighbourhood. Every change sees the same draws of donors.

    Edges are rewired (each reads a random node of the same graph, so that degrees stay), dropped,
    or half dropped; self-loops stay.

    A node's own features against those of others: nodes are dealt into 20 folds. *Own* changes
    the features of one fold and reads the predictions of exactly these; *others* changes all but
    the fold. Both are approximate, as a node may have neighbours in its own fold: about 5 % of
    what it reads is changed under *own*, and is not under *others*.

    Intervals are for other draws and other nodes: the variance of a mean over R draws and N nodes
    is taken as $s_R^2/R + s_N^2/N$, of the means by draw and by node, which is on the safe side.
    Nodes of one graph depend on each other, and no interval of this kind knows that.

    Args:
        model: A fitted model.
        graph: The graph to predict on.
        blocks: Name → columns.
        repeats: Draws of each random change.
        tick: Told of every pass.
    """
    watch = _Watch(model, graph, tick)
    n, seed = graph.num_nodes, seed_of(model)
    several = graph.environment is not None and np.unique(graph.environment).size > 1
    features = [watch.exchange(name, columns, repeats) for name, columns in blocks.items()]
    everything = watch.exchange(ALL, np.arange(graph.x.shape[1]), repeats)
    e, random, both = graph.edge_index, np.random.default_rng([seed, 1]), bool(model.undirected)
    changes: dict[str, Iterator[Tensor]] = {
        "rewired": (rewire(e, graph.graph, random, both) for _ in range(repeats)),
        "half dropped": (drop_edges(e, n, 0.5, random) for _ in range(repeats)),
        "dropped": iter([drop_edges(e, n, 1.0, random)]),
    }
    edges = [
        watch.effect(name, map(graph.with_edges, changed)) for name, changed in changes.items()
    ]
    own, others = _own_and_others(watch, seed)
    scored = graph.scored
    return Reliance(
        nodes=n,
        scored=int(scored.sum()),
        accuracy=share(watch.before_right) if scored.any() else None,
        donors="other environments" if several else "other nodes",
        repeats=repeats,
        features=sorted(features, key=lambda effect: -effect.flipped.value),
        everything=everything,
        edges=edges,
        own=own,
        others=others,
    )


def exchanged(
    model: Model,
    graph: Diagnosed,
    name: str,
    columns: np.ndarray,
    repeats: int = 10,
    tick: Tick = lambda _: None,
) -> Effect:
    """What drawing some columns from other nodes does, as `reliance` does it with a block."""
    return _Watch(model, graph, tick).exchange(name, columns, repeats)


def by_name(relied: Reliance) -> dict[str, Effect]:
    """Every effect by what was changed: blocks, `all features`, `edges rewired`, …"""
    blocks = {effect.name: effect for effect in [*relied.features, relied.everything]}
    edges = {f"edges {effect.name}": effect for effect in relied.edges}
    return blocks | edges | {effect.name: effect for effect in (relied.own, relied.others)}


def num_passes(num_blocks: int, repeats: int) -> int:
    """How often `reliance` predicts the whole graph."""
    return (num_blocks + 1 + 2) * repeats + 1 + 2 * FOLDS


class _Watch:
    """Predicts changed graphs and compares with the graph as it is."""

    def __init__(self, model: Model, graph: Diagnosed, tick: Tick) -> None:
        self._model, self.graph, self._tick = model, graph, tick
        self._from_features = model.predictor(graph.data)
        self._scored = graph.scored
        self._y = graph.y[self._scored]
        self.before = graph.prediction
        self.before_right = self._right(self.before)

    def exchange(self, name: str, columns: np.ndarray, repeats: int) -> Effect:
        """What columns of other nodes do to the predictions; the same donors for every block."""
        graph, random = self.graph, np.random.default_rng(seed_of(self._model))
        donors = (draw_donors(graph.num_nodes, random, graph.environment) for _ in range(repeats))
        changed = (replace_features(graph.x, d, columns) for d in donors)
        predictions = (self.predict_from(x, name) for x in changed)
        return self.compare(name, "features", predictions, columns.size)

    def predict_from(self, x: Matrix, about: str) -> np.ndarray:
        """The likeliest class $[N]$ with other features."""
        self._tick(about)
        return np.asarray(self._from_features(as_features(x)).argmax(axis=1))

    def _predict(self, data: Data, about: str) -> np.ndarray:
        """The likeliest class $[N]$ in another graph."""
        self._tick(about)
        return np.asarray(self._model.predict_proba(data).argmax(axis=1))

    def effect(self, name: str, graphs: Iterator[Data]) -> Effect:
        """What graphs with other edges, one for each draw, do to the predictions."""
        return self.compare(name, "edges", (self._predict(data, name) for data in graphs))

    def compare(
        self, name: str, kind: Kind, predictions: Iterator[np.ndarray], columns: int = 0
    ) -> Effect:
        """What changed predictions $[N]$, one for each draw, tell."""
        flips, right, lost = _Means(), _Means(), _Means()
        for prediction in predictions:
            flips.add(prediction != self.before)
            if self._scored.any():
                after = self._right(prediction)
                right.add(after)
                lost.add(self.before_right.astype(float) - after)
        labelled = self._scored.any()
        return Effect(
            name,
            kind,
            columns,
            flipped=flips.share(),
            accuracy=right.share() if labelled else None,
            lost=lost.points() if labelled else None,
        )

    def _right(self, prediction: np.ndarray) -> np.ndarray:
        return np.asarray(prediction[self._scored] == self._y)


@dataclass
class _Means:
    """Values $[n]$ of several draws: their mean over draws and nodes, and how sure it is."""

    by_draw: list[float] = field(default_factory=list)
    total: np.ndarray | None = None

    def add(self, values: np.ndarray) -> None:
        self.by_draw.append(float(values.mean()))
        self.total = values + (0.0 if self.total is None else self.total)

    def share(self) -> Estimate:
        """Percent, with the interval of as many independent nodes as have the same variance."""
        mean, variance, size = self._moments()
        alike = mean * (1 - mean) / variance if variance > 0 and 0 < mean < 1 else size
        return wilson(mean, alike)

    def points(self) -> Estimate:
        """In points of a hundred."""
        mean, variance, _ = self._moments()
        return normal(100 * mean, 1e4 * variance)

    def _moments(self) -> tuple[float, float, int]:
        assert self.total is not None
        draws, nodes = len(self.by_draw), self.total.size
        by_node = self.total / draws
        variance = by_node.var(ddof=1) / nodes if nodes > 1 else 0.0
        variance += np.var(self.by_draw, ddof=1) / draws if draws > 1 else 0.0
        return float(np.mean(self.by_draw)), float(variance), nodes


def _own_and_others(watch: _Watch, seed: int) -> tuple[Effect, Effect]:
    """Effects of a node's own features and of everybody else's, each node read once."""
    graph = watch.graph
    n = graph.num_nodes
    random = np.random.default_rng([seed, 2])
    donors = draw_donors(n, random, graph.environment)
    nodes = np.arange(n)
    own, others = watch.before.copy(), watch.before.copy()
    for fold in np.array_split(random.permutation(n), min(FOLDS, n)):
        inside = np.zeros(n, dtype=bool)
        inside[fold] = True
        for outcome, changed, about in ((own, inside, OWN), (others, ~inside, OTHERS)):
            x = replace_features(graph.x, np.where(changed, donors, nodes))
            outcome[fold] = watch.predict_from(x, about)[fold]
    columns = graph.x.shape[1]
    return (
        watch.compare(OWN, "node", iter([own]), columns),
        watch.compare(OTHERS, "node", iter([others]), columns),
    )
