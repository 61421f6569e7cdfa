"""Small graphs in tables, for tests of what is read from files."""

from __future__ import annotations

from pathlib import Path

NODES = """\
id,age,colour,vip,kind,split,when,region
ann,10,red,True,good,train,2024-01-01,north
bob,20,blue,False,bad,train,2024-01-02,north
cat,30,red,False,good,valid,2024-01-03,south
dan,90,,True,,test,2024-01-04,south
"""
EDGES = "source,target\nann,bob\nbob,cat\ncat,dan\ndan,dan\n"
ROLES = {"label": "kind", "time": "when", "environment": "region"}


def write_folder(folder: Path, nodes: str = NODES, edges: str = EDGES) -> Path:
    """A folder with the two tables as CSV files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return folder
