"""Small graphs as tables, for tests of reading files."""

import csv
from pathlib import Path

import numpy as np

NODES = """\
id,age,colour,vip,kind,split,when,region
ann,10,red,True,good,train,2024-01-01,north
bob,20,blue,False,bad,train,2024-01-02,north
cat,30,red,False,good,valid,2024-01-03,south
dan,90,,True,,test,2024-01-04,south
"""
EDGES = "source,target\nann,bob\nbob,cat\ncat,dan\ndan,dan\n"
ROLES = {"label": "kind", "time": "when", "environment": "region"}
SAME_CLASS = {"wisconsin": {"0": "1", "1": "0", "2": "3", "3": "2"}}
"""Wisconsin's file numbers its classes in another order than the other two files.

The classes were matched by their mean words: student pages, for example, are class 3 in Wisconsin
and class 2 in the others.
"""


def write_folder(folder: Path, nodes: str = NODES, edges: str = EDGES) -> Path:
    """Write the two tables as CSV files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return folder


def write_university(root: Path, name: str, folder: Path) -> Path:
    """Write a university of WebKB as two CSV files: 1,703 word columns and directed edges."""
    folder.mkdir(parents=True)
    raw = root / "webkb" / name
    lines = (raw / "out1_node_feature_label.txt").read_text().splitlines()[1:]
    with (folder / "nodes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"word{i}" for i in range(1703)), "category"])
        for line in lines:
            number, words, label = line.split("\t")
            category = SAME_CLASS.get(name, {}).get(label, label)
            writer.writerow([number, *words.split(","), category])
    edges = (raw / "out1_graph_edges.txt").read_text().splitlines()[1:]
    rows = ["source,target", *(line.replace("\t", ",") for line in edges)]
    (folder / "edges.csv").write_text("\n".join(rows) + "\n")
    return folder


def write_users(folder: Path, num_nodes: int, seed: int, label: bool = True) -> Path:
    """Users u0, u1, … of three topics that depend on their age, friends at random, with a month."""
    random = np.random.default_rng(seed)
    topic = random.integers(0, 3, num_nodes)
    folder.mkdir(parents=True)
    with (folder / "nodes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "age", "city", *(["topic"] if label else []), "month"])
        for i in range(num_nodes):
            age = 20 + 10 * topic[i] + random.normal(0, 2)
            city, month = (
                ("Rome", "Oslo")[random.integers(2)],
                f"2026-{random.integers(1, 10):02}-01",
            )
            name = ["red", "green", "blue"][topic[i]] if i % 5 else ""
            writer.writerow([f"u{i}", f"{age:.1f}", city, *([name] if label else []), month])
    with (folder / "edges.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        writer.writerows(
            (f"u{a}", f"u{b}") for a, b in random.integers(0, num_nodes, (3 * num_nodes, 2))
        )
    return folder
