"""The official files of every data set: where they lie, where they come from, what they must be."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class RawFile(NamedTuple):
    """One official file.

    `path` is its place below a data root. `url` is its official address, or that of a zip archive
    that holds it under one of the names in `members`. A file without address is never downloaded.
    """

    path: str
    url: str | None
    members: tuple[str, ...] = ()


class Known(NamedTuple):
    """Size in bytes and SHA-256 of a published file."""

    size: int
    sha256: str


def _planetoid(name: str) -> tuple[RawFile, ...]:
    """The published `x` and `y` repeat rows of `allx` and `ally`, so nothing reads them."""
    kinds = ("allx", "ally", "tx", "ty", "graph", "test.index")
    folder = "https://github.com/kimiyoung/planetoid/raw/master/data"
    return tuple(
        RawFile(f"planetoid/ind.{name}.{kind}", f"{folder}/ind.{name}.{kind}") for kind in kinds
    )


def _twitch() -> tuple[RawFile, ...]:
    """The archive names DE's features without the ending `_features`."""
    paths = [
        f"twitch/{folder}/musae_{folder}_{kind}"
        for folder in ("DE", "PTBR", "RU", "ES", "FR", "ENGB")
        for kind in ("edges.csv", "features.json", "target.csv")
    ]
    url = "https://snap.stanford.edu/data/twitch.zip"
    return tuple(RawFile(path, url, (path, path.replace("_features", ""))) for path in paths)


def _arxiv() -> tuple[RawFile, ...]:
    kinds = ("edge", "node-feat", "node-label", "node_year", "num-node-list", "num-edge-list")
    url = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
    paths = [f"arxiv/raw/{kind}.csv.gz" for kind in kinds]
    return tuple(RawFile(path, url, (path,)) for path in paths)


def _elliptic() -> tuple[RawFile, ...]:
    names = [f"elliptic_txs_{kind}.csv" for kind in ("features", "edgelist", "classes")]
    folder = "https://data.pyg.org/datasets/elliptic"
    return tuple(RawFile(f"elliptic/raw/{n}", f"{folder}/{n}.zip", (n,)) for n in names)


FILES: dict[str, tuple[RawFile, ...]] = {
    "synthetic": (),
    "cora": _planetoid("cora"),
    "citeseer": _planetoid("citeseer"),
    "pubmed": _planetoid("pubmed"),
    "twitch": _twitch(),
    "arxiv": _arxiv(),
    "elliptic": _elliptic(),
}
"""Task → the files it is read from."""

TIME_STEPS = RawFile("elliptic/time_steps.csv", None)
"""Elliptic's time step of every transaction, for use without the large features file."""


def _known() -> dict[str, Known]:
    """Read `checksums.txt` beside this file: one line `sha256 size path` per file."""
    lines = Path(__file__).with_name("checksums.txt").read_text(encoding="utf-8").splitlines()
    return {path: Known(int(size), digest) for digest, size, path in map(str.split, lines)}


KNOWN: dict[str, Known] = _known()
"""Path → what the published file is; files not named here are recorded at first use."""
