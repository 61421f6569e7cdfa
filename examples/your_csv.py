"""Your CSV files: train on one folder, predict another, and see what the model relies on.

    python examples/your_csv.py                                  # writes two small folders
    python examples/your_csv.py MAY JUNE --label fraud --time joined --undirected

A folder contains `nodes.csv`, with an id and other columns for each node, and `edges.csv`, with
the columns `source` and `target`. The small folders describe accounts of a shop and which of them
share a device. In May, a voucher was popular among fraudsters. In June it was not.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

import canet


def write_month(folder: Path, seed: int, month: int, voucher_share: float) -> Path:
    """Write 600 accounts; `voucher_share` of the fraudulent accounts have used a voucher."""
    random = np.random.default_rng(seed)
    fraud = random.random(600) < 0.3
    orders = random.poisson(np.where(fraud, 3, 6))
    voucher = random.random(600) < np.where(fraud, voucher_share, 0.1)
    country = random.choice(["DE", "FR", "PT"], 600)
    pairs = random.integers(600, size=(3000, 2))
    alike = (fraud[pairs[:, 0]] == fraud[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])
    folder.mkdir()
    with (folder / "nodes.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "country", "orders", "voucher", "joined", "fraud"])
        for i in range(600):
            label = "" if i % 5 == 0 else "yes" if fraud[i] else "no"  # every fifth has no label
            joined = f"2026-{month:02}-{1 + i % 28:02}"
            table.writerow([f"a{i}", country[i], orders[i], int(voucher[i]), joined, label])
    with (folder / "edges.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["source", "target"])
        table.writerows([f"a{i}", f"a{j}"] for i, j in pairs[alike])
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path, nargs="?", help="folder to train on")
    parser.add_argument("new", type=Path, nargs="?", help="folder to predict")
    parser.add_argument("--label", default="fraud")
    parser.add_argument("--time", default=None, help="column of dates or numbers")
    parser.add_argument("--undirected", action="store_true")
    parser.add_argument("--method", default="canet")
    parser.add_argument("--backbone", default="gcn")
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    if options.old is not None and options.new is None:
        parser.error("pass two folders, the old and the new one, or none")

    with tempfile.TemporaryDirectory() as scratch:
        old, new, time, undirected = options.old, options.new, options.time, options.undirected
        if old is None:
            old = write_month(Path(scratch, "may"), seed=0, month=5, voucher_share=0.9)
            new = write_month(Path(scratch, "june"), seed=1, month=6, voucher_share=0.1)
            time, undirected = "joined", True

        data = canet.read_graph(old, label=options.label, time=time)
        model = canet.NodeClassifier(
            options.method, options.backbone, epochs=options.epochs, undirected=undirected
        ).fit(data)
        new_data = canet.read_graph(new, encoding=model.encoding_)

    print(f"{old.name}: {data.num_nodes:,} nodes, {data.num_edges:,} edges")
    print("classes:", ", ".join(map(str, model.classes_)))
    for note in model.encoding_.notes():
        print(note)
    print(f"validation accuracy: {model.scores_['valid']:.1%}")

    probability = model.predict_proba(new_data)
    novelty = model.novelty_score(new_data)
    print(f"\n{new.name}: {new_data.num_nodes:,} nodes, the first three")
    for i, prediction in enumerate(model.predict(new_data)[:3]):
        print(
            f"  {new_data.node_id[i]}: {prediction}, probability {probability[i].max():.2f}, "
            f"novelty score {novelty[i]:.2f}"
        )

    diagnosis = canet.diagnose(model, data, new_data)
    print(diagnosis.headline)
    print(diagnosis.expectation)
    shifted = [column.name for column in diagnosis.shift.shifted_columns]
    print("shifted since training:", ", ".join(shifted) or "none")
    print("accuracy that is lost if a column gets the values of other nodes:")
    for effect in diagnosis.reliance.features:
        print(f"  {effect.name}: {effect.size.value:.1%}")


if __name__ == "__main__":
    main()
