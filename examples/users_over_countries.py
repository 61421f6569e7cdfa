"""Users over countries: train on three social networks, predict on three others.

Twitch has a graph of users for each country. The label says whether a user streams mature content.
Models are trained on DE, PT and RU and predict ES, FR and EN, which they have never seen.

    CANET_DATA_ROOT=FOLDER python examples/users_over_countries.py --epochs 100

The graphs have 3,170 features, nearly all zero, which are stored as a sparse matrix.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import canet
from canet.util.sparse import from_scipy, to_scipy

TRAINING, NEW = ("DE", "PT", "RU"), ("ES", "FR", "EN")
MODELS = [("erm", "gat", {}), ("vrex", "gat", {}), ("canet", "gat", {"tau": 2.0})]


def countries(task: canet.ShiftTask, names: Sequence[str]) -> Data:
    """Return the graphs of some countries as one graph, with the country of each node."""
    numbers = torch.tensor([task.environments.index(name) for name in names])
    chosen = torch.isin(task.data.environment, numbers)
    edge_index, _ = subgraph(chosen, task.data.edge_index, relabel_nodes=True)
    return Data(
        x=from_scipy(to_scipy(task.data.x)[chosen.numpy()]),
        edge_index=edge_index,
        y=task.data.y[chosen],
        country=[task.environments[number] for number in task.data.environment[chosen]],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()

    task = canet.load_task("twitch")
    training = countries(task, TRAINING)
    new = {name: countries(task, [name]) for name in NEW}
    print(f"training: {', '.join(TRAINING)}, {training.num_nodes:,} users")
    print("ROC-AUC %   valid     " + "     ".join(NEW))

    for method, backbone, settings in MODELS:
        model = canet.NodeClassifier(
            method,
            backbone,
            epochs=options.epochs,
            metric="roc_auc",
            loss="binary_cross_entropy",
            dropout=0.0,
            **settings,
        )
        # vrex needs environments; `batch` is the graph of each node.
        model.fit(training, environment=training.country, batch=training.country)
        scores = [100 * model.score(graph) for graph in new.values()]
        cells = "  ".join(f"{score:5.1f}" for score in scores)
        name = f"{method} {backbone}"
        print(f"{name:<9} {100 * model.scores_['valid']:7.1f}  {cells}")

    posterior = model.environments(new["EN"])[-1].mean(axis=0)
    print("mean posterior of CaNet's pseudo-environments in EN, last layer:", posterior.round(2))


if __name__ == "__main__":
    main()
