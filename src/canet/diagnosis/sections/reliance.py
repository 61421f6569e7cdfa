"""What a model relies on: change a part of its input, and count the predictions that flip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from canet.diagnosis.blocks import Blocks
from canet.diagnosis.estimate import Estimate, normal, wilson
from canet.diagnosis.examination import Examination
from canet.diagnosis.graph import DiagnosedGraph
from canet.diagnosis.perturb import draw_donors, drop_edges, rewire
from canet.diagnosis.scoring import score_parts

FOLDS = 20  # a node's own features are changed with those of 5 % of the nodes at a time
ALL, OWN, OTHERS = "all features", "own features", "others' features"
CLEAR_FLIPS = 0.01  # of the predictions
Kind = Literal["features", "edges", "node"]
Tick = Callable[[str], None]


@dataclass(frozen=True)
class Effect:
    """What one change does to the predictions."""

    name: str  # the block, or what was done to the edges
    kind: Kind  # what was changed
    columns: int  # how many columns were changed
    flipped: Estimate  # share of the predictions that differ from those before
    score: Estimate | None  # the model's metric after the change; None without labels
    # How much of it is lost, each node compared with itself; None without labels.
    lost: Estimate | None

    @property
    def matters(self) -> bool:
        """Whether the change flips 1 % of the predictions or more."""
        return self.flipped.value >= CLEAR_FLIPS


@dataclass(frozen=True)
class Reliance:
    """What a model relies on, on one graph."""

    nodes: int  # how many predictions were compared
    scored: int  # how many of the nodes have a label that they were not trained on
    # The model's metric on these, on the graph as it is; None where it is undefined.
    score: Estimate | None
    donors: str  # where other values come from: `other nodes`, or `other environments`
    repeats: int  # draws of each random change
    features: list[Effect]  # a feature block each, the one that flips most first
    everything: Effect  # all features at once
    edges: list[Effect]  # rewired, half dropped, dropped
    own: Effect  # a node's own features
    others: Effect  # the features of all other nodes, which it reads along edges

    @property
    def effects(self) -> dict[str, Effect]:
        """Every effect by what was changed: blocks, `all features`, `edges rewired`, …"""
        blocks = {effect.name: effect for effect in [*self.features, self.everything]}
        edges = {f"edges {effect.name}": effect for effect in self.edges}
        return blocks | edges | {effect.name: effect for effect in (self.own, self.others)}


def examine(exam: Examination) -> dict[str, Reliance]:
    """What predictions depend on, for each graph."""
    return {
        name: reliance(graph, exam.blocks, exam.seed, exam.repeats, exam.tick)
        for name, graph in exam.graphs.items()
    }


def reliance(
    graph: DiagnosedGraph,
    blocks: Blocks,
    seed: int = 0,
    repeats: int = 10,
    tick: Tick = lambda _: None,
) -> Reliance:
    """How predictions on a graph depend on feature blocks, edges, and whose features they are.

    A block's columns get the values of one other node, all together: relations within a block
    stay, while those to the label, to other blocks and to the neighbourhood are cut. In a graph
    with several environments the other node comes from another one. All nodes are changed at
    once, so a flip is an effect of the block in the node's whole neighbourhood. Every change uses
    the same draws of donors.

    Edges are rewired (pairs of the same graph exchange their sources, so that degrees stay),
    dropped, or half dropped; self-loops stay.

    A node's own features against those of others: nodes are assigned to 20 folds at random. *Own*
    changes the features of one fold and reads the predictions of exactly these; *others* changes
    all except the fold. Both are approximate, as a node may have neighbours in its own fold: about
    5 % of what it reads is changed under *own*, and is not under *others*.

    Intervals are for other draws and other nodes: the variance of a mean over R draws and N nodes
    is taken as $s_R^2/R + s_N^2/N$, of the means by draw and by node, which is on the safe side.
    They ignore that nodes of one graph depend on each other.
    """
    n, columns = graph.num_nodes, graph.x.shape[1]
    several = graph.environment is not None and np.unique(graph.environment).size > 1
    every = blocks | {ALL: np.arange(columns)}
    *features, everything = (
        exchanged(graph, name, chosen, seed, repeats, tick) for name, chosen in every.items()
    )
    edges, random = graph.edge_index, np.random.default_rng([seed, 1])
    alone = drop_edges(edges, n, 1.0, random)
    changes: dict[str, tuple[int, Callable[[], Tensor]]] = {
        "rewired": (repeats, lambda: rewire(edges, graph.graph, random, graph.undirected)),
        "half dropped": (repeats, lambda: drop_edges(edges, n, 0.5, random)),
        "dropped": (1, lambda: alone),
    }
    effects = []
    for name, (draws, change) in changes.items():
        outcomes = []
        for _ in range(draws):
            tick(name)
            outcomes.append(_outcome(graph, graph.predict_edges(change())))
        effects.append(_effect(graph, name, "edges", 0, outcomes))
    own, others = _own_and_others(graph, seed, tick)
    return Reliance(
        nodes=n,
        scored=int(graph.scored.sum()),
        score=graph.score,
        donors="other environments" if several else "other nodes",
        repeats=repeats,
        features=sorted(features, key=lambda effect: -effect.flipped.value),
        everything=everything,
        edges=effects,
        own=_effect(graph, OWN, "node", columns, [_outcome(graph, own)]),
        others=_effect(graph, OTHERS, "node", columns, [_outcome(graph, others)]),
    )


def exchanged(
    graph: DiagnosedGraph,
    name: str,
    columns: np.ndarray,
    seed: int = 0,
    repeats: int = 10,
    tick: Tick = lambda _: None,
) -> Effect:
    """What drawing some columns from other nodes does; the same donors for all columns."""
    random, outcomes = np.random.default_rng(seed), []
    part = graph.map_columns(columns)
    rest = graph.mapped - part
    for _ in range(repeats):
        tick(name)
        donors = draw_donors(graph.num_nodes, random, graph.environment)
        outcomes.append(_outcome(graph, graph.predict_mapped(rest + part[donors])))
    return _effect(graph, name, "features", columns.size, outcomes)


def num_passes(num_blocks: int, repeats: int) -> int:
    """How often `reliance` predicts the whole graph."""
    return (num_blocks + 1 + 2) * repeats + 1 + 2 * FOLDS


def _outcome(graph: DiagnosedGraph, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which predictions $[N]$ flip with other logits, and the parts of the metric then."""
    flips = logits.argmax(axis=1) != graph.prediction
    return flips, score_parts(graph.metric, logits[graph.scored], graph.y[graph.scored])


def _effect(
    graph: DiagnosedGraph,
    name: str,
    kind: Kind,
    columns: int,
    outcomes: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Effect:
    """The effect of a change from its outcomes, one for each draw."""
    flips, after = (np.stack(part) for part in zip(*outcomes, strict=True))
    if graph.score is None:
        return Effect(name, kind, columns, _share(flips), None, None)
    scored = graph.scored
    before = score_parts(graph.metric, graph.logits[scored], graph.y[scored])
    mean, variance = _moments(after)
    score = normal(mean, variance).within(0, 1)
    if graph.metric == "accuracy":
        score = _share(after)
    mean, variance = _moments(before - after)
    lost = normal(mean, variance)
    return Effect(name, kind, columns, _share(flips), score, lost)


def _share(hits: np.ndarray) -> Estimate:
    """A share, with the interval of as many independent nodes as have the same variance."""
    mean, variance = _moments(hits)
    alike = mean * (1 - mean) / variance if variance > 0 and 0 < mean < 1 else hits.shape[1]
    return wilson(mean, alike)


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Mean of values $[R, n]$ over draws and nodes, and the variance of this mean."""
    draws, nodes = values.shape
    variance = values.mean(axis=0).var(ddof=1) / nodes if nodes > 1 else 0.0
    variance += values.mean(axis=1).var(ddof=1) / draws if draws > 1 else 0.0
    return float(values.mean()), float(variance)


def _own_and_others(graph: DiagnosedGraph, seed: int, tick: Tick) -> tuple[np.ndarray, np.ndarray]:
    """Logits $[N, C]$ with changed own features, and with those of everybody else changed."""
    n, random = graph.num_nodes, np.random.default_rng([seed, 2])
    donors = draw_donors(n, random, graph.environment)
    own, others = np.empty_like(graph.probabilities), np.empty_like(graph.probabilities)
    for fold in np.array_split(random.permutation(n), min(FOLDS, n)):
        inside = np.zeros(n, dtype=bool)
        inside[fold] = True
        for outcome, changed, about in ((own, inside, OWN), (others, ~inside, OTHERS)):
            tick(about)
            mapped = graph.mapped[np.where(changed, donors, np.arange(n))]
            outcome[fold] = graph.predict_mapped(mapped, fold)
    return own, others
