"""A diagnosis: what a model relies on, what moved, and what to expect of it on a new graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch_geometric.data import Data

from canet.diagnosis.between import MOVING, BetweenGroups, between_groups, clear_columns
from canet.diagnosis.blocks import column_names, feature_blocks
from canet.diagnosis.confidence import Confidence, confidence
from canet.diagnosis.environments import Environments, environments
from canet.diagnosis.estimate import plain
from canet.diagnosis.expected import ExpectedScore, expected_score
from canet.diagnosis.graph import read, seed_of
from canet.diagnosis.reliance import Effect, Reliance, exchanged, num_passes, reliance
from canet.diagnosis.shift import Shift, shift
from canet.errors import InputError
from canet.util.progress import Display

if TYPE_CHECKING:
    from canet.estimator.classifier import NodeClassifier

TRAINING, NEW = "training", "new"
MOVED = "columns that moved"


@dataclass(frozen=True)
class ModelSummary:
    """What was diagnosed: `scores` are the model's own, of its training, in percent."""

    method: str
    backbone: str
    classes: list[str]
    features: int
    scores: dict[str, float]
    metric: str


@dataclass(frozen=True)
class Diagnosis:
    """All that is known of a model on its training graph and on a new one.

    Args:
        model: What was diagnosed.
        graphs: `training` and `new`, those that were given → their numbers of nodes and edges.
        reliance: By graph: what predictions depend on.
        shift: What moved between training and the new graph; None without a new graph.
        expected: Accuracy to expect on the new graph; None without one.
        stressed: What is left, on the training graph, of the accuracy on nodes that were not
            trained on when the columns that clearly moved are drawn from other nodes: what to
            expect if these columns tell nothing any more. None unless both graphs were given and
            some column moved.
        between_groups: Which columns moved between groups of training nodes, how far they moved to
            the new graph in the same units, and whether the model relies on them; None where
            training had too few nodes or columns, or the model was saved before this was kept.
        environments: By graph: the pseudo environments that the model infers; empty for a method
            that infers none.
        confidence: What the model's confidence is worth.
    """

    model: ModelSummary
    graphs: dict[str, tuple[int, int]]
    reliance: dict[str, Reliance]
    shift: Shift | None
    expected: ExpectedScore | None
    stressed: Effect | None
    between_groups: BetweenGroups | None
    environments: dict[str, Environments]
    confidence: Confidence

    def to_json(self) -> dict[str, Any]:
        """Plain content for a JSON file; what is not finite is None."""
        content: dict[str, Any] = plain(self)
        return content


def diagnose(
    model: NodeClassifier,
    data: Data | None = None,
    new_data: Data | None = None,
    *,
    blocks: Mapping[str, Any] | None = None,
    repeats: int = 10,
) -> Diagnosis:
    """Find out what a model relies on, what moved, and what to expect of it.

    The same model, graphs and arguments give the same numbers.

    Args:
        model: A fitted `canet.NodeClassifier`.
        data: The graph it was trained on, to see what it relies on there.
        new_data: The graph to predict. What moved is told against what the model remembers of its
            training. Labels, where it has some, are only used to tell how far off things are.
        blocks: Name → columns (numbers, slice, mask or names) that are changed together; found
            where None.
        repeats: Draws of each random change.
    """
    given = {TRAINING: data, NEW: new_data}
    if data is None and new_data is None:
        raise InputError("there is no graph to diagnose on: give data, new_data or both")
    if not isinstance(repeats, int) or repeats < 1:
        raise InputError(f"repeats is {repeats!r}: give a whole number from 1 on")
    graphs = {
        name: read(model, graph, trained_on=name == TRAINING)
        for name, graph in given.items()
        if graph is not None
    }
    columns, names = feature_blocks(model, blocks), column_names(model)
    between = clear_columns(model)
    new = graphs.get(NEW)
    passes = len(graphs) * num_passes(len(columns), repeats)
    passes += ((len(graphs) > 1) + (between.size > 0)) * repeats
    done = 0
    with Display(passes, unit="passes", quiet=not model.verbose) as display:

        def tick(about: str) -> None:
            nonlocal done
            display.update(done, text=about)
            done += 1

        relied = {
            name: reliance(model, graph, columns, repeats, tick) for name, graph in graphs.items()
        }
        display.update(done, text="what moved")
        moved = shift(model, new, columns, names) if new else None
        stressed = relied_between = None
        if moved and moved.moved and TRAINING in graphs:
            chosen = np.sort([column.number for column in moved.moved])
            stressed = exchanged(model, graphs[TRAINING], MOVED, chosen, repeats, tick)
        if between.size:
            main = next(iter(graphs.values()))
            relied_between = exchanged(model, main, MOVING, between, repeats, tick)
    kept = model.reference_
    found = {name: environments(model, graph) for name, graph in graphs.items()}
    return Diagnosis(
        model=summary(model),
        graphs={name: (g.num_nodes, g.edge_index.shape[1]) for name, g in graphs.items()},
        reliance=relied,
        shift=moved,
        expected=expected_score(
            kept.valid_logits.double().numpy(),
            kept.valid_y.numpy(),
            new.logits,
            new.y,
            seed_of(model),
        )
        if new
        else None,
        stressed=stressed,
        between_groups=between_groups(model, moved, names, relied_between),
        environments={name: part for name, part in found.items() if part is not None},
        confidence=confidence(model, new),
    )


def summary(model: NodeClassifier) -> ModelSummary:
    """A model in a few words and numbers."""
    return ModelSummary(
        method=model.method,
        backbone=model.backbone,
        classes=[str(name) for name in model.classes_],
        features=model.n_features_in_,
        scores={name: 100 * score for name, score in model.scores_.items()},
        metric=model.metric,
    )
