"""Reliance: replace a part of the input, and measure what the model loses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from canet.diagnosis.context import TRAINING, Context
from canet.diagnosis.graph import DiagnosedGraph
from canet.diagnosis.perturb import rewire
from canet.scoring.intervals import Estimate, normal, wilson

ALL = "all features"
EDGES = "edges"
CLEAR_LOSS, CLEAR_CHANGE = 0.01, 0.05  # smallest reliance that is called one


@dataclass(frozen=True)
class Effect:
    """The effect of one change of the input on the predictions."""

    name: str  # of the block, `all features` or `edges`
    columns: int  # number of replaced columns
    # Share of the predicted classes that change; for a metric that ranks, share of the pairs of
    # nodes whose order changes.
    changed: Estimate
    lost: Estimate | None  # metric before minus after the change; None without labels

    @property
    def size(self) -> Estimate:
        """The reliance: what the metric loses or, without labels, the share that changes."""
        return self.lost or self.changed

    @property
    def is_relevant(self) -> bool:
        """Whether at least 1 point of the metric is lost or, without labels, 5 % change."""
        smallest = CLEAR_CHANGE if self.lost is None else CLEAR_LOSS
        return self.size.value >= smallest and self.size.low > 0


@dataclass(frozen=True)
class Reliance:
    """The reliance of a model on the parts of one graph."""

    graph: Literal["training", "new"]  # on validation nodes of the training graph, or on new nodes
    nodes: int  # number of nodes, only labelled ones if there is a score
    score: Estimate | None  # metric on validation nodes before any change; None on a new graph
    donors: str  # whose values: `other nodes`, `nodes of other environments`, `training nodes`
    repeats: int  # repetitions of each random change
    features: list[Effect]  # one per feature block, the largest first
    all_features: Effect  # all features at once
    edges: Effect  # edges that are rewired


def compute(context: Context) -> Reliance:
    """How much the predictions on a graph depend on feature blocks and on edges.

    They are those for validation nodes or, without the training graph, for new nodes.

    *Blocks*: in every node, all columns of a block get the values of one other node, the donor.
    This keeps the relations within the block, and removes those to the label, to other blocks and
    to the neighbours. If the graph has several environments, the donor is in another environment.
    For a new graph, donors are the stored training nodes, because a column may be empty there, and
    labels are not used: the model may already have lost what such a column gave.
    All nodes change at once, so the effect includes the neighbourhood. All blocks use the same
    donors.

    *Edges* are rewired: random pairs of edges swap their sources, so the degrees do not change.
    Self-loops are kept.

    The intervals cover the choice of donors and of nodes: a mean over R draws and N nodes has the
    variance $s_R^2/R + s_N^2/N$, from the means per draw and per node, which is conservative. They
    ignore that the nodes of a graph depend on each other.
    """
    graph, seed, repeats, on_pass = context.main, context.seed, context.repeats, context.on_pass
    has_environments = graph.environment is not None and np.unique(graph.environment).size > 1
    donors = "nodes of other environments" if has_environments else "other nodes"
    if TRAINING not in context.graphs:
        graph = replace(graph, y=np.full_like(graph.y, -1), donors=context.reference.x)
        donors = "training nodes"
    replaced = context.blocks | {ALL: np.arange(graph.x.shape[1])}
    *features, all_features = (
        replace_columns(graph, block, chosen, seed, repeats, on_pass)
        for block, chosen in replaced.items()
    )
    random, outcomes = np.random.default_rng([seed, 1]), []
    for _ in range(repeats):
        on_pass(EDGES)
        weight = graph.edge_weight
        edges = rewire(graph.edge_index, graph.graph, random, graph.undirected, weight)
        outcomes.append(graph.predict_edges(*edges))
    return Reliance(
        graph="training" if TRAINING in context.graphs else "new",
        nodes=graph.rows.size if graph.score is None else int(graph.scored.sum()),
        score=graph.score,
        donors=donors,
        repeats=repeats,
        features=sorted(features, key=lambda effect: -effect.size.value),
        all_features=all_features,
        edges=_effect(graph, EDGES, 0, outcomes),
    )


def replace_columns(
    graph: DiagnosedGraph,
    name: str,
    columns: np.ndarray,
    seed: int = 0,
    repeats: int = 5,
    on_pass: Callable[[str], None] = lambda _: None,
) -> Effect:
    """The effect of giving these columns of every node the values of another node."""
    random, outcomes = np.random.default_rng(seed), []
    predict = graph.replacing(columns)
    for _ in range(repeats):
        on_pass(name)
        outcomes.append(predict(graph.draw_donors(random)))
    return _effect(graph, name, columns.size, outcomes)


def num_passes(num_blocks: int, repeats: int) -> int:
    """Number of predictions of the whole graph in `compute`."""
    return (num_blocks + 2) * repeats


def _effect(
    graph: DiagnosedGraph, name: str, columns: int, outcomes: Sequence[np.ndarray]
) -> Effect:
    """Combine the logits $[n, C]$ of the diagnosed nodes after all draws of one change."""
    changed = _share(np.stack([graph.changes(logits) for logits in outcomes]))
    if graph.score is None:
        return Effect(name, columns, changed, None)
    before = graph.pseudo_values(graph.logits[graph.rows])
    after = np.stack([graph.pseudo_values(logits) for logits in outcomes])
    return Effect(name, columns, changed, normal(*_moments(before - after)))


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
