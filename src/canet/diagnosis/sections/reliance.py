"""Reliance: replace a part of the input, and count the predictions that change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from canet.diagnosis.blocks import Blocks
from canet.diagnosis.context import Context
from canet.diagnosis.estimate import Estimate, normal, wilson
from canet.diagnosis.graph import DiagnosedGraph
from canet.diagnosis.perturb import draw_donors, drop_edges, rewire

NUM_FOLDS = 20  # the own features of 1/20 of the nodes are replaced at a time
ALL, OWN, OTHERS = "all features", "own features", "features of other nodes"
CLEAR_FLIPS = 0.01  # smallest flip rate that counts as reliance
Kind = Literal["features", "edges", "node"]
OnPass = Callable[[str], None]


@dataclass(frozen=True)
class Effect:
    """The effect of one change of the input on the predictions."""

    name: str  # of the block, or of the change of the edges
    kind: Kind  # the part of the input that was changed
    columns: int  # number of replaced columns
    flip_rate: Estimate  # share of the predictions that change
    score: Estimate | None  # metric after the change; None without labels
    score_loss: Estimate | None  # metric before minus after the change; None without labels

    @property
    def is_relevant(self) -> bool:
        """Whether at least 1 % of the predictions change, or the score falls by 1 point."""
        return self.importance >= CLEAR_FLIPS

    @property
    def importance(self) -> float:
        """Share of the predictions that change, or the loss of the score if it is larger.

        A few predictions can matter much, for example if one class is rare.
        """
        loss = 0.0 if self.score_loss is None else max(0.0, self.score_loss.low)
        return max(self.flip_rate.value, loss)


@dataclass(frozen=True)
class Reliance:
    """The reliance of a model on the parts of one graph."""

    nodes: int  # number of nodes
    scored: int  # number of labelled nodes that are not training nodes
    score: Estimate | None  # metric on the scored nodes before any change; None if undefined
    donors: str  # source of the new values: `other nodes` or `nodes of other environments`
    repeats: int  # repetitions of each random change
    features: list[Effect]  # one per feature block, the highest flip rate first
    all_features: Effect  # all features at once
    edges: list[Effect]  # rewired, half dropped, dropped
    own: Effect  # features of the predicted node
    others: Effect  # features of all other nodes

    @property
    def effects(self) -> dict[str, Effect]:
        """All effects by name: blocks, `all features`, `edges rewired`, …"""
        blocks = {effect.name: effect for effect in [*self.features, self.all_features]}
        edges = {f"edges {effect.name}": effect for effect in self.edges}
        return blocks | edges | {effect.name: effect for effect in (self.own, self.others)}


def compute(context: Context) -> dict[str, Reliance]:
    """Compute the reliance on each graph."""
    return {
        name: reliance(graph, context.blocks, context.seed, context.repeats, context.on_pass)
        for name, graph in context.graphs.items()
    }


def reliance(
    graph: DiagnosedGraph,
    blocks: Blocks,
    seed: int = 0,
    repeats: int = 10,
    on_pass: OnPass = lambda _: None,
) -> Reliance:
    """How much the predictions on a graph depend on feature blocks, on edges and on other nodes.

    *Blocks*: in every node, all columns of a block get the values of one other node, the donor.
    This keeps the relations within the block, and removes those to the label, to other blocks and
    to the neighbours. If the graph has several environments, the donor is in another environment.
    All nodes change at once, so the effect includes the neighbourhood. All blocks use the same
    donors.

    *Edges* are rewired (random pairs of edges swap their sources, so the degrees do not change),
    all dropped, or half of them dropped. Self-loops are kept.

    *Own features and features of other nodes*: the nodes are split at random into 20 folds. *Own*
    replaces the features of one fold and predicts this fold; *others* replaces the features of all
    other nodes and predicts the fold. Both are approximate, because about 5 % of the neighbours of
    a node are in its own fold.

    The intervals cover the choice of donors and of nodes: a mean over R draws and N nodes has the
    variance $s_R^2/R + s_N^2/N$, from the means per draw and per node, which is conservative. They
    ignore that the nodes of a graph depend on each other.
    """
    n, columns = graph.num_nodes, graph.x.shape[1]
    has_environments = graph.environment is not None and np.unique(graph.environment).size > 1
    replaced = blocks | {ALL: np.arange(columns)}
    *features, all_features = (
        replace_columns(graph, name, chosen, seed, repeats, on_pass)
        for name, chosen in replaced.items()
    )
    edges, weight, random = graph.edge_index, graph.edge_weight, np.random.default_rng([seed, 1])
    no_edges = drop_edges(edges, n, 1.0, random, weight)
    changes: dict[str, tuple[int, Callable[[], tuple[Tensor, Tensor | None]]]] = {
        "rewired": (repeats, lambda: rewire(edges, graph.graph, random, graph.undirected, weight)),
        "half dropped": (repeats, lambda: drop_edges(edges, n, 0.5, random, weight)),
        "dropped": (1, lambda: no_edges),
    }
    effects = []
    for name, (draws, change) in changes.items():
        outcomes = []
        for _ in range(draws):
            on_pass(name)
            outcomes.append(_outcome(graph, graph.predict_edges(*change())))
        effects.append(_effect(graph, name, "edges", 0, outcomes))
    own, others = _own_or_other_features(graph, seed, on_pass)
    return Reliance(
        nodes=graph.rows.size,
        scored=int(graph.scored.sum()),
        score=graph.score,
        donors="nodes of other environments" if has_environments else "other nodes",
        repeats=repeats,
        features=sorted(features, key=lambda effect: -effect.importance),
        all_features=all_features,
        edges=effects,
        own=_effect(graph, OWN, "node", columns, [_outcome(graph, own)]),
        others=_effect(graph, OTHERS, "node", columns, [_outcome(graph, others)]),
    )


def replace_columns(
    graph: DiagnosedGraph,
    name: str,
    columns: np.ndarray,
    seed: int = 0,
    repeats: int = 10,
    on_pass: OnPass = lambda _: None,
) -> Effect:
    """Effect of replacing the values of some columns by those of other nodes.

    In each draw, all columns of a node come from the same donor.
    """
    random, outcomes = np.random.default_rng(seed), []
    replaced = graph.map_columns(columns)
    fixed = graph.mapped - replaced
    for _ in range(repeats):
        on_pass(name)
        donors = draw_donors(graph.num_nodes, random, graph.environment)
        outcomes.append(_outcome(graph, graph.predict_mapped(fixed + replaced[donors])))
    return _effect(graph, name, "features", columns.size, outcomes)


def num_passes(num_blocks: int, repeats: int) -> int:
    """Number of predictions of the whole graph in `reliance`."""
    return (num_blocks + 1 + 2) * repeats + 1 + 2 * NUM_FOLDS


def _outcome(graph: DiagnosedGraph, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mask $[n]$ of the predictions that change, and pseudo-values of the new metric."""
    flips = (logits.argmax(axis=1) != graph.prediction)[graph.rows]
    return flips, graph.pseudo_values(logits)


def _effect(
    graph: DiagnosedGraph,
    name: str,
    kind: Kind,
    columns: int,
    outcomes: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Effect:
    """Combine the outcomes of all draws of one change."""
    flips, after = (np.stack(part) for part in zip(*outcomes, strict=True))
    if graph.score is None:
        return Effect(name, kind, columns, _share(flips), None, None)
    before = graph.pseudo_values(graph.logits)
    mean, variance = _moments(after)
    score = normal(mean, variance).clip(0, 1)
    if graph.metric.name == "accuracy":
        score = _share(after)
    mean, variance = _moments(before - after)
    score_loss = normal(mean, variance)
    return Effect(name, kind, columns, _share(flips), score, score_loss)


def _share(hits: np.ndarray) -> Estimate:
    """Share of hits $[R, n]$ with the Wilson interval at the effective sample size."""
    mean, variance = _moments(hits)
    size = mean * (1 - mean) / variance if variance > 0 and 0 < mean < 1 else hits.shape[1]
    return wilson(mean, size)


def _moments(values: np.ndarray) -> tuple[float, float]:
    """Mean of values $[R, n]$ over draws and nodes, and the variance of the mean."""
    draws, nodes = values.shape
    variance = values.mean(axis=0).var(ddof=1) / nodes if nodes > 1 else 0.0
    variance += values.mean(axis=1).var(ddof=1) / draws if draws > 1 else 0.0
    return float(values.mean()), float(variance)


def _own_or_other_features(
    graph: DiagnosedGraph, seed: int, on_pass: OnPass
) -> tuple[np.ndarray, np.ndarray]:
    """Logits $[N, C]$ after replacing own features, and after replacing those of other nodes."""
    n, random = graph.num_nodes, np.random.default_rng([seed, 2])
    donors = draw_donors(n, random, graph.environment)
    own, others = np.empty_like(graph.probabilities), np.empty_like(graph.probabilities)
    for fold in np.array_split(random.permutation(n), min(NUM_FOLDS, n)):
        inside = np.zeros(n, dtype=bool)
        inside[fold] = True
        for outcome, replaced, name in ((own, inside, OWN), (others, ~inside, OTHERS)):
            on_pass(name)
            mapped = graph.mapped[np.where(replaced, donors, np.arange(n))]
            outcome[fold] = graph.predict_mapped(mapped, fold)
    return own, others
