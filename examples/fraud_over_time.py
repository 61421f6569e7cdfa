"""Fraud over time: train on the first steps of a transaction graph, predict the later ones.

Elliptic is a graph of Bitcoin transactions in 49 time steps. Some transactions are known to be
illicit or licit. Models are trained on steps 1-20 and predict steps 21-49, which are new graphs.

    CANET_DATA_ROOT=FOLDER python examples/fraud_over_time.py --epochs 60

The features are computed from the graph, because the official file of features is large. 118
columns describe the position of a transaction in the graph, 10 its connections and those of its
neighbours. The position predicts the label within steps 1-20 but not in later steps. A validation
set of the latest steps shows this problem in advance; a random one does not.
"""

from __future__ import annotations

import argparse

import torch
from torch_geometric.data import Data

import canet

LAST_OF_TRAINING = 20
LATER = [(21, 25), (26, 30), (31, 35), (36, 40), (41, 45), (46, 49)]
NUM_LOCAL = 10  # the last columns: connections of a node and its neighbours

MODELS = [
    # columns, validation, method, backbone
    ("all", "random", "erm", "sage"),
    ("all", "latest", "erm", "sage"),
    ("local", "latest", "erm", "sage"),
    ("local", "latest", "canet", "sage"),
]


def steps(whole: Data, first: int, last: int) -> Data:
    """Return the transactions of some time steps as a graph."""
    return whole.subgraph((whole.time >= first) & (whole.time <= last))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=60)
    epochs = parser.parse_args().epochs

    data = canet.load_task("elliptic", features="structural").data
    step = data.environment + 1
    graphs = {
        # y is 1 for illicit, 0 for licit and -1 for unknown transactions
        "all": Data(x=data.x, edge_index=data.edge_index, y=data.y, time=step),
        "local": Data(x=data.x[:, -NUM_LOCAL:], edge_index=data.edge_index, y=data.y, time=step),
    }
    known = data.y[step <= LAST_OF_TRAINING]
    illicit, labelled = int((known == 1).sum()), int((known >= 0).sum())
    print(f"training: steps 1-{LAST_OF_TRAINING}, {len(known):,} transactions,")
    print(f"{labelled:,} of them labelled, {illicit:,} illicit; ROC-AUC %:\n")
    print("columns, validation, model     valid   " + "   ".join(f"{a}-{b}" for a, b in LATER))

    for columns, validation, method, backbone in MODELS:
        past = steps(graphs[columns], 1, LAST_OF_TRAINING)
        if validation == "random":
            del past.time
        model = canet.NodeClassifier(
            method,
            backbone,
            epochs=epochs,
            hidden=32,
            metric="roc_auc",
            class_weight="balanced",  # few transactions are illicit
            undirected=True,
        ).fit(past)
        scores = [model.score(steps(graphs[columns], *window)) for window in LATER]
        name = f"{columns}, {validation}, {method}-{backbone}"
        cells = "   ".join(f"{100 * score:5.1f}" for score in scores)
        print(f"{name:<29} {100 * model.scores_['valid']:6.1f}   {cells}")

    newest = steps(graphs["local"], 46, 49)
    suspects = torch.from_numpy(model.predict_proba(newest)[:, 1]).topk(3)
    novelty = model.novelty_score(newest)
    print("\nmost suspicious nodes of steps 46-49, last model (node, probability, novelty score):")
    for node, probability in zip(suspects.indices.tolist(), suspects.values.tolist(), strict=True):
        print(f"{node:>7}  {probability:.3f}  {novelty[node]:.2f}")


if __name__ == "__main__":
    main()
