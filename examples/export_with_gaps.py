"""An export as it is: missing values, text, dates, edge weights, and 2 % positives.

The script writes two months of a generated shop: accounts with empty cells, free text, dates and
numbers such as "1,250", and payments between them with an amount. About 2 % of the accounts are
fraudulent. It fits a model on May, scores June, and diagnoses the model, without preparing the
tables.

    python examples/export_with_gaps.py --out shop
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

import canet

HEADER = ["ID", "country", "age", "balance", "opened", "newsletter", "orders", "remark", "status"]


def write_month(folder: Path, seed: int, month: int, accounts: int = 3000) -> None:
    """Write nodes.csv and edges.csv; in June, balances are higher and more of them are unknown."""
    random = np.random.default_rng(seed)
    fraud = random.random(accounts) < 0.02
    rows = []
    for i in range(accounts):
        age = "NA" if random.random() < 0.1 else int(random.normal(30 if fraud[i] else 42, 9))
        balance = f"{np.exp(random.normal(7 + (month - 5), 1)):,.0f}"
        row = [
            f"account-{i}",
            random.choice(["DE", "FR", "PT", ""], p=[0.5, 0.3, 0.15, 0.05]),
            age,
            "" if random.random() < 0.1 * (month - 4) else balance,
            f"{2026 - random.poisson(0.5 if fraud[i] else 4)}-{random.integers(1, 13):02}-01",
            random.choice(["true", "false", ""]),
            random.poisson(1 if fraud[i] else 4),
            f"called on {random.integers(1, 29)}.{month}., reference {i}",
            "" if i % 10 == 0 else "fraud" if fraud[i] else "ok",
        ]
        rows.append(row)
    edges = []
    rings = np.flatnonzero(fraud)
    for source in range(accounts):
        for _ in range(random.poisson(3)):
            same = fraud[source] and random.random() < 0.6
            target = random.choice(rings) if same else random.integers(accounts)
            amount = random.exponential(400 if same else 60)
            edges.append([f"account-{source}", f"account-{target}", f"{amount:.2f}"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, header, content in (
        ("nodes.csv", HEADER, rows),
        ("edges.csv", ["from", "to", "amount"], edges),
    ):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *content])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("shop"), help="folder to write to")
    parser.add_argument("--preset", default="fast", help="fast, or robust: also compare networks")
    options = parser.parse_args()

    may, june = options.out / "may", options.out / "june"
    write_month(may, seed=0, month=5)
    write_month(june, seed=1, month=6)

    data = canet.read_graph(may, label="status", weight="amount")
    for note in data.encoding.notes():
        print(f"note: {note}")
    model = canet.NodeClassifier(
        preset=options.preset,
        metric="average_precision",
        class_weight="balanced",
        undirected=True,
    ).fit(data)
    labelled = [label for label in data.y if label]
    print(f"share of fraud: {labelled.count('fraud') / len(labelled):.1%}")
    print(f"average precision, validation nodes of May: {model.scores_['valid']:.3f}")

    new = canet.read_graph(june, label="status", encoding=model.encoding_)
    print(f"average precision in June: {model.score(new):.3f}")
    print(f"recall among the 100 most likely accounts: {model.recall_at_k(new, 100):.0%}")
    found = model.predict(new, threshold="best") == "fraud"
    print(f"accounts above the best threshold: {found.sum()}")
    share = model.predict_proba(new, calibrated=True)[:, 0].mean()
    print(f"calibrated mean probability of fraud: {share:.1%}")

    diagnosis = canet.diagnose(model, None, new)
    print("shifted since May:", ", ".join(c.name for c in diagnosis.shift.shifted_columns))
    diagnosis.save(options.out / "diagnosis.html")
    print(f"page: {options.out / 'diagnosis.html'}")


if __name__ == "__main__":
    main()
