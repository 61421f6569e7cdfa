"""Users over countries: learn from three social networks, predict in three others.

Twitch has a graph of users for each country, and the question is who streams for adults. A model
is trained on DE, PT and RU and predicts ES, FR and EN, of which it sees nothing before.

    python examples/users_over_countries.py --epochs 100

The graphs have 3,170 features, nearly all zero: they stay sparse from reading to predicting.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import canet
from canet.util.sparse import from_scipy, to_scipy

HERE, ELSEWHERE = ("DE", "PT", "RU"), ("ES", "FR", "EN")
CONTESTANTS = [("erm", "gat", {}), ("vrex", "gat", {}), ("canet", "gat", {"tau": 2.0})]


def countries(task: canet.ShiftTask, names: Sequence[str]) -> Data:
    """The graphs of some countries as one graph, each node with the name of its own."""
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
    here = countries(task, HERE)
    elsewhere = {name: countries(task, [name]) for name in ELSEWHERE}
    print(f"training: {', '.join(HERE)}, {here.num_nodes:,} users")
    print("ROC-AUC %   valid     " + "     ".join(ELSEWHERE))

    for method, backbone, settings in CONTESTANTS:
        model = canet.NodeClassifier(
            method,
            backbone,
            epochs=options.epochs,
            metric="roc_auc",
            loss="binary_cross_entropy",
            dropout=0.0,
            verbose=0,
            **settings,
        )
        # Environments are for the methods that need them; graphs keep countries apart.
        model.fit(here, environment=here.country, graph=here.country)
        scores = [100 * model.score(graph) for graph in elsewhere.values()]
        cells = "  ".join(f"{score:5.1f}" for score in scores)
        name = f"{method} {backbone}"
        print(f"{name:<9} {100 * model.scores_['valid']:7.1f}  {cells}")

    shares = model.environments(elsewhere["EN"])[-1].mean(axis=0)
    print("shares of CaNet's pseudo environments in EN, last layer:", shares.round(2))


if __name__ == "__main__":
    main()
