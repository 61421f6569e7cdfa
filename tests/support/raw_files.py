"""Small raw files in the published layout."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from canet.data.benchmarks.dataset import RawFile


def without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the verification of raw files, except of pickles."""
    monkeypatch.setattr(
        RawFile,
        "sha256",
        property(lambda file: file[2] if file.path.startswith("planetoid/") else None),
    )


def write_twitch(root: Path) -> None:
    """Write six regions of 20 users in a ring; even users are mature, user u has features u, 3169.

    Rows are in reverse order, FR contains users 3 and 18 twice, and user 0 has no features.
    """
    for folder in ("DE", "PTBR", "RU", "ES", "FR", "ENGB"):
        users = [*range(19, -1, -1), *((3, 18) if folder == "FR" else ())]
        rows = [f"{9000 + u},100,{u % 2 == 0},50,False,{u}" for u in users]
        start = root / "twitch" / folder / f"musae_{folder}"
        _write(Path(f"{start}_target.csv"), ["id,days,mature,views,partner,new_id", *rows])
        ring = [f"{u},{(u + 1) % 20}" for u in range(20)]
        _write(Path(f"{start}_edges.csv"), ["from,to", *ring])
        games = {str(u): [3169, u, u] for u in range(1, 20)}
        Path(f"{start}_features.json").write_text(json.dumps(games), encoding="utf-8")


def write_arxiv(root: Path, nodes: int = 170) -> None:
    """Write papers: paper i has year 2004 + i mod 17, subject i mod 5, and cites i / 2, i - 1."""
    edges = [f"{i},{cited}" for i in range(1, nodes) for cited in {i // 2, i - 1}]
    tables: dict[str, Iterable[str]] = {
        "edge": edges,
        "node-feat": (",".join(f"{i + j / 1000:.6f}" for j in range(128)) for i in range(nodes)),
        "node-label": (str(i % 5) for i in range(nodes)),
        "node_year": (str(2004 + i % 17) for i in range(nodes)),
        "num-node-list": [str(nodes)],
        "num-edge-list": [str(len(edges))],
    }
    for name, rows in tables.items():
        path = root / "arxiv" / "raw" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(f"{row}\n" for row in rows)


def write_elliptic(root: Path) -> None:
    """Write a chain of nine transactions in each of 49 steps; classes alternate: unknown, 1, 2.

    The features file and the classes file have different orders.
    """
    ids = [7_000_000 - 11 * i for i in range(49 * 9)]
    step = [i // 9 + 1 for i in range(len(ids))]
    raw = root / "elliptic" / "raw"
    classes = [f"{tx},{('unknown', '1', '2')[i % 3]}" for i, tx in enumerate(ids)]
    _write(raw / "elliptic_txs_classes.csv", ["txId,class", *classes])
    chain = [f"{ids[i]},{ids[i + 1]}" for i in range(len(ids) - 1) if step[i] == step[i + 1]]
    _write(raw / "elliptic_txs_edgelist.csv", ["txId1,txId2", *chain])
    features = [
        f"{ids[i]},{step[i]}," + ",".join(str(i + j / 1000) for j in range(165))
        for i in reversed(range(len(ids)))
    ]
    _write(raw / "elliptic_txs_features.csv", features)
    steps = [f"{tx},{number}" for tx, number in zip(ids, step, strict=True)]
    _write(root / "elliptic" / "time_steps.csv", ["txId,time_step", *steps])


def _write(path: Path, rows: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
