"""What new users do wrong in Python, each with the word that must be named."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data, HeteroData

import canet
from canet.data.graph_files import write_npz
from tests.support.frames import frames
from tests.support.stores import write_store
from tests.support.user_graphs import rare_class_graph, small_user_graph
from tests.support.user_tables import write_folder, write_users

N = 24
Use = Callable[["Place"], object]


def graph(**changes: Any) -> Data:
    """A graph of 24 nodes with two classes; `changes` replace its attributes."""
    random = torch.Generator().manual_seed(0)
    ends = torch.randint(N, (2, 60), generator=random)
    y = torch.arange(N) % 2
    x = torch.randn(N, 3, generator=random) + 2 * y[:, None]
    return Data(**{"x": x, "edge_index": torch.cat([ends, ends.flip(0)], 1), "y": y} | changes)


def linear(**params: Any) -> canet.NodeClassifier:
    return canet.NodeClassifier("linear", **{"undirected": True} | params)


def tables(**changes: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables of nodes and edges; `changes` replace columns of the nodes."""
    nodes, edges = frames()
    return nodes.assign(**changes), edges


def mask(count: int = N) -> torch.Tensor:
    return torch.arange(count) % 2 == 0


def leaky() -> Data:
    """A graph with a rare class in which the last column gives the class away."""
    data = rare_class_graph()
    data.x[:, 3] += 9 * torch.tensor([label == "fraud" for label in data.y])
    return data


class Place:
    """A folder with graphs and models, which is also the working folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = linear().fit(graph())
        self.three = linear().fit(small_user_graph())
        self.tables = linear().fit(*frames(), label="label")
        self.diagnosis = canet.diagnose(self.model, None, graph(), repeats=1)
        write_users(folder / "january", 90, 0)
        write_users(folder / "february", 70, 1)
        users = linear().fit(folder / "january", label="topic")
        users.save(folder / "model")
        users.save(folder / "broken")
        next((folder / "broken").glob("weights-*")).unlink()
        write_store(folder / "store")
        write_npz(folder / "arrays.npz", graph())
        (folder / "empty").mkdir()
        for name, text in {
            "text.pt": "hello",
            "ids.txt": "u7\nnobody\n",
            "wrong.json": "{",
        }.items():
            (folder / name).write_text(text)

    def predict(self, *arguments: Any, **changes: Any) -> object:
        return self.model.predict(*arguments or [graph(**changes)])

    def diagnose(self, **arguments: Any) -> object:
        return canet.diagnose(self.model, None, graph(), **arguments)

    def read(self, nodes: str | bytes, edges: str | bytes = "source,target\n1,2\n") -> object:
        """Read a folder with these two files."""
        folder = write_folder(self.folder / "tables")
        for name, content in {"nodes": nodes, "edges": edges}.items():
            raw = content if isinstance(content, bytes) else content.encode()
            (folder / f"{name}.csv").write_bytes(raw)
        return canet.read_graph(folder)

    def read_file(self, name: str, content: bytes = b"") -> object:
        (self.folder / name).write_bytes(content)
        return canet.read_graph(self.folder / name)

    def read_npz(self, **arrays: Any) -> object:
        np.savez(self.folder / "some.npz", **arrays)
        return canet.read_graph(self.folder / "some.npz")

    def load_changed(self, pattern: str, change: Callable[[str], str]) -> object:
        """Load a copy of the model in which a file was changed."""
        copy = shutil.copytree(self.folder / "model", self.folder / "copy", dirs_exist_ok=True)
        (path,) = copy.glob(pattern)
        path.write_text(change(path.read_text(errors="replace")))
        return canet.load(copy)


X, Y, EDGES = graph().x, graph().y, graph().edge_index
NAN = float("nan")
IDS = [f"n{i}" for i in range(40)]


def nan_at(row: int, column: int) -> torch.Tensor:
    x = X.clone()
    x[row, column] = NAN
    return x


PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"method": "liner"}, "'linear'"),
    ({"method": None}, "method"),
    ({"method": "gcn"}, "backbone"),
    ({"method": LogisticRegression()}, "'linear'"),
    ({"method": LogisticRegression}, "'linear'"),
    ({"method": ["linear", "trees"]}, "'linear'"),
    ({"method": 3}, "method"),
    ({"method": "linear", "backbone": "gcn"}, "backbone"),
    ({"method": "erm", "backbone": "gcm"}, "'gcn'"),
    ({"method": "erm", "backbone": 3}, "backbone"),
    ({"epochs": "many"}, "'epochs'"),
    ({"epochs": 0}, "'epochs'"),
    ({"epochs": 1.5}, "'epochs'"),
    ({"method": "erm", "patience": -1}, "'patience'"),
    ({"method": "linear", "patience": 5}, "'patience'"),
    ({"metric": "acuracy"}, "'accuracy'"),
    ({"metric": f1_score}, "metric"),
    ({"metric": ["accuracy"]}, "metric"),
    ({"class_weight": "ballanced"}, "class_weight"),
    ({"class_weight": [1, 2]}, "class_weight"),
    ({"class_weight": {0: -1.0}}, "class_weight"),
    ({"class_weight": {"dog": 2.0}}, "class_weight"),
    ({"undirected": "no"}, "undirected"),
    ({"preset": "fastest"}, "fast, robust"),
    ({"preset": 3}, "preset"),
    ({"preset": []}, "preset"),
    ({"method": "erm", "preset": "fast"}, "'preset'"),
    ({"time_limit": "1h"}, "'time_limit'"),
    ({"time_limit": NAN}, "'time_limit'"),
    ({"time_limit": -1}, "'time_limit'"),
    ({"method": "erm", "time_limit": 9}, "'time_limit'"),
    ({"keep_on_interrupt": "yes"}, "keep_on_interrupt"),
    ({"n_jobs": 0}, "jobs is 0"),
    ({"n_jobs": "two"}, "jobs is 'two'"),
    ({"ray": 5}, "ray"),
    ({"checkpoints": 3}, "checkpoints"),
    ({"threads": 0}, "threads"),
    ({"threads": "two"}, "threads"),
    ({"device": "gpu"}, "'cuda'"),
    ({"device": 3}, "device"),
    ({"device": None}, "device"),
    ({"random_state": "zero"}, "random_state"),
    ({"random_state": -1}, "random_state"),
    ({"verbose": "yes"}, "verbose"),
    ({"callbacks": 3}, "callbacks"),
    ({"callbacks": print}, "callbacks"),
    ({"callbacks": [3]}, "callbacks"),
    ({"callbacks": [print], "n_jobs": 2}, "n_jobs"),
    ({"backbone": "gcn"}, "backbone"),
    ({"num_environments": 3}, "'canet'"),
    ({"hiden": 8}, "'hidden'"),
    ({"lr": 0.1}, "'learning_rate'"),
    ({"method": "erm", "tau": 2}, "'tau'"),
    ({"method": "erm", "hidden": "big"}, "'hidden'"),
    ({"method": "erm", "hidden": 10**12}, "'hidden'"),
    ({"method": "erm", "dropout": 1.0}, "'dropout'"),
    ({"method": "linear", "scaling": "standard"}, "'scaling'"),
    ({"method": "linear", "neighbours": "maybe"}, "'neighbours'"),
]
"""Parameters of `NodeClassifier`."""

GRAPHS: list[tuple[dict[str, Any], str]] = [
    ({"x": None}, "x"),
    ({"x": X[:, 0]}, "x"),
    ({"x": nan_at(2, 1)}, "columns 1"),
    ({"x": X * 1e300 * 1e10}, "x"),
    ({"x": X.to(torch.cfloat)}, "x"),
    ({"x": np.full((N, 2), "a")}, "x"),
    ({"x": [[2**70, 1.0]] * N}, "scale"),
    ({"x": X[:10]}, "x has 10 rows"),
    ({"x": X[:, :0]}, "x"),
    ({"x": [[1, 2], [3]]}, "x"),
    ({"x": pd.Series([1.0] * N)}, "x"),
    ({"edge_index": None}, "edge_index"),
    ({"edge_index": EDGES.T}, "edge_index"),
    ({"edge_index": EDGES.float()}, "edge_index"),
    ({"edge_index": EDGES + 5}, "edge_index"),
    ({"edge_index": EDGES - 5}, "edge_index"),
    ({"edge_index": None, "adj_t": sp.eye(N)}, "adj_t"),
    ({"edge_index": sp.eye(N)}, "edge_index"),
    ({"edge_weight": -torch.ones(EDGES.shape[1])}, "edge_weight"),
    ({"edge_weight": torch.ones(3)}, "edge_weight"),
    ({"edge_weight": torch.full((EDGES.shape[1],), NAN)}, "edge_weight"),
    ({"edge_attr": torch.ones(EDGES.shape[1], 2)}, "edge_attr"),
    ({"y": None}, "y"),
    ({"y": Y[:5]}, "y"),
    ({"y": Y * 0}, "two classes"),
    ({"y": Y + 0.5}, "y"),
    ({"y": torch.eye(2)[Y]}, "argmax"),
    ({"y": [None] * N}, "y"),
    ({"y": [-1] * N}, "y"),
    ({"y": [1, -1] * 12}, "-1"),
    ({"y": ["a", 1] * 12}, "y"),
    ({"y": torch.arange(N)}, "label"),
    ({"y": Y.to(torch.cfloat)}, "y"),
    ({"y": "label"}, "y"),
    ({"train_mask": mask(5)}, "train"),
    ({"train_mask": mask().float()}, "train"),
    ({"train_mask": torch.zeros(N, dtype=torch.bool)}, "train"),
    ({"train_mask": torch.ones(N, 10).bool()}, "train"),
    ({"val_mask": torch.arange(N) < 9, "y": [-1] * 9 + [0, 1, 1] * 5}, "valid"),
    ({"train_mask": mask(), "val_mask": mask()}, "overlap"),
    ({"train_mask": torch.arange(N) < 20, "test_mask": torch.arange(N) > 10}, "overlap"),
    ({"batch": torch.zeros(5)}, "batch"),
    ({"environment": [0.5] * N}, "environment"),
    ({"time": ["2020"] * N}, "time"),
    ({"time": [NAN] * N}, "time"),
    ({"node_id": ["a"]}, "node_id"),
    ({"node_id": 3}, "node_id"),
    ({"num_nodes": 40}, "num_nodes"),
]
"""Attributes of the `Data` of `fit`."""

FIT: list[tuple[dict[str, Any], str]] = [
    ({"train": mask(5)}, "train"),
    ({"train": mask().long()}, "train"),
    ({"train": range(N), "valid": range(5)}, "overlap"),
    ({"train": [0, 99]}, "99"),
    ({"train": [0, 2, 4], "valid": [1, 3]}, "train"),
    ({"train": ["n1"]}, "node_id"),
    ({"train": 0.8}, "train"),
    ({"train": "train_mask"}, "train"),
    ({"valid": 0.2}, "valid"),
    ({"valid": []}, "valid"),
    ({"time": [1, 2]}, "time"),
    ({"environment": [1, 2]}, "environment"),
    ({"sample_weight": [-1.0] * N}, "sample_weight"),
    ({"sample_weight": [0.0] * N}, "sample_weight"),
    ({"label": "y"}, "label"),
    ({"labels": "y"}, "'label'"),
    ({"time": "month"}, "time"),
    ({"edges": EDGES}, "edges"),
    ({"without": "age"}, "age"),
    ({"without": [7]}, "7"),
    ({"warm_start": True}, "warm_start"),
    ({"warm_start": canet.NodeClassifier("linear")}, "warm_start"),
]
"""Arguments of `fit` with a `Data`."""

TABLES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, "label"),
    ({}, {"label": "lable"}, "'label'"),
    ({}, {"label": ["label"]}, "label"),
    ({}, {"label": 3}, "label"),
    ({}, {"label": "label", "id": "age"}, "id"),
    ({}, {"label": "label", "id": "nr"}, "nr"),
    ({}, {"label": "label", "time": "city"}, "city"),
    ({}, {"label": "label", "time": "age"}, "time"),
    ({}, {"label": "label", "split": "city"}, "city"),
    ({}, {"label": "label", "weight": "amount"}, "amount"),
    ({}, {"label": "label", "source_column": "from"}, "from"),
    ({}, {"label": "label", "without": ["agge"]}, "'age'"),
    ({}, {"label": "label", "fill": "zero"}, "'zero'"),
    ({}, {"label": "label", "witout": ["age"]}, "'without'"),
    ({}, {"label": "label", "without": None}, "'None'"),
    ({}, {"label": frames()[0].label}, "label is"),
    ({}, {"label": "label", "environment": ["city"]}, "environment"),
    ({}, {"label": "since"}, "label column"),
    ({}, {"label": "age"}, "age"),
    ({"label": None}, {"label": "label"}, "label"),
    ({"label": "yes"}, {"label": "label"}, "yes"),
    ({"id": "n0"}, {"label": "label"}, "n0"),
    ({"id": [f"m{i}" for i in range(40)], "crossing": IDS}, {"label": "label"}, "id='crossing'"),
    ({"age": np.inf}, {"label": "label"}, "age"),
    ({"age": [2**70] * 40}, {"label": "label"}, "age"),
    ({"age": np.ones(40) * 1j}, {"label": "label"}, "age"),
    ({"age": [[1, 2]] * 40}, {"label": "label"}, "age"),
    ({"age": [1, "two"] * 20}, {"label": "label"}, "age"),
    ({"age": [object()] * 40}, {"label": "label"}, "age"),
    ({"same": frames()[0].label}, {"label": "label"}, "same"),
]
"""Columns of the table of nodes and arguments of `fit`."""


NODES = "id,age,label\n1,5,a\n2,6,b\n"
read, load, inspect, diagnose = canet.read_graph, canet.load, canet.inspect_graph, canet.diagnose
OnGraph, Writer, Store = canet.OnGraph, canet.GraphStoreWriter, canet.GraphStore
CALLS: dict[str, tuple[Use, str]] = {
    # The graph
    "fit nothing": (lambda _: linear().fit(None), "NoneType"),
    "fit a list": (lambda _: linear().fit([1, 2]), "int"),
    "fit a dict": (lambda _: linear().fit({"x": X}), "dict"),
    "fit x and y": (lambda _: linear().fit(X.numpy(), Y.numpy()), "OnGraph"),
    "fit an empty Data": (lambda _: linear().fit(Data()), "features x"),
    "fit several Data": (lambda _: linear().fit([graph(), graph()]), "Data"),
    "fit HeteroData": (lambda _: linear().fit(HeteroData()), "HeteroData"),
    "fit one table": (lambda _: linear().fit(frames()[0], label="label"), "edges"),
    "fit a Series": (lambda _: linear().fit(*(t.iloc[:, 0] for t in frames())), "Series"),
    "edges as a Series": (lambda _: linear().fit(frames()[0], frames()[1].source), "Series"),
    "label as edges": (lambda _: linear().fit(frames()[0], "label"), "edges"),
    "tables swapped": (lambda _: linear().fit(*frames()[::-1], label="label"), "'label'"),
    "fit a matrix": (lambda _: linear().fit(sp.csr_matrix(X)), "csr_matrix"),
    "networkx without attributes": (lambda _: linear().fit(nx.path_graph(5)), "degrees"),
    "a pipeline": (lambda _: make_pipeline(StandardScaler(), linear()).fit(X, Y), "OnGraph"),
    "cross_val_score of rows": (
        lambda _: cross_val_score(linear(), X, Y, error_score="raise"),
        "OnGraph",
    ),
    "GridSearchCV": (
        lambda _: GridSearchCV(OnGraph(linear(), graph()), {"model__hiden": [1]}).fit(
            range(9), Y[:9]
        ),
        "'hidden'",
    ),
    "OnGraph of tables": (lambda _: OnGraph(linear(), frames()).fit(range(9)), "Data"),
    "OnGraph of scikit-learn": (lambda _: OnGraph(LogisticRegression(), graph()).fit([1]), "Data"),
    "OnGraph of features": (lambda _: OnGraph(linear(), graph()).fit(X, Y), "train"),
    "OnGraph before fit": (lambda _: OnGraph(linear(), graph()).predict([0]), "fit"),
    # A fitted model
    "predict before fit": (lambda _: linear().predict(graph()), "fit"),
    "score before fit": (lambda _: linear().score(graph()), "fit"),
    "save before fit": (lambda _: linear().save("new"), "fit"),
    "leaderboard before fit": (lambda _: linear().leaderboard(), "fit"),
    "summary before fit": (lambda _: linear().summary(), "fit"),
    "set an unknown parameter": (lambda _: linear().set_params(hiden=3), "'hidden'"),
    "predict other columns": (lambda p: p.predict(x=X[:, :2]), "2 features"),
    "predict without features": (lambda p: p.predict(x=None), "features x"),
    "predict NaN": (lambda p: p.predict(x=nan_at(0, 2)), "columns 2"),
    "predict a matrix": (lambda p: p.predict(X), "Tensor"),
    "predict as in PyG": (lambda p: p.predict(X, EDGES), "Tensor"),
    "predict nothing": (lambda p: p.predict(None), "NoneType"),
    "predict a missing path": (lambda p: p.predict("nowhere"), "nowhere"),
    "predict a short mask": (lambda p: p.predict(graph(), mask(5)), "nodes"),
    "predict node 99": (lambda p: p.predict(graph(), [99]), "99"),
    "predict node -1": (lambda p: p.predict(graph(), [-1]), "-1"),
    "predict one number": (lambda p: p.predict(graph(), 3), "nodes"),
    "predict by name": (lambda p: p.predict(graph(), ["n1"]), "node_id"),
    "predict a short batch": (lambda p: p.predict(graph(), None, [0, 1]), "batch"),
    "threshold 2": (lambda p: p.predict(graph(), None, None, 2), "threshold"),
    "threshold high": (lambda p: p.predict(graph(), None, None, "high"), "threshold"),
    "threshold of 3 classes": (lambda p: p.three.predict(small_user_graph(), threshold=0.5), "two"),
    "another reader": (lambda p: p.predict(p.three.prepare(small_user_graph())), "another model"),
    "predict tables": (lambda p: p.predict(frames()), "arrays"),
    "predict no tables": (lambda p: p.tables.predict(graph()), "encoding"),
    "a missing column": (lambda p: p.tables.predict((frames()[0][["id"]], frames()[1])), "age"),
    "text for numbers": (lambda p: p.tables.predict(tables(age="old")), "age"),
    "score without labels": (lambda p: p.model.score(graph(y=None)), "label"),
    "score other labels": (lambda p: p.model.score(graph(y=["a", "b"] * 12)), "y contains"),
    "score unknown classes": (lambda p: p.model.score(graph(y=Y + 5)), "24 nodes"),
    "score labels as nodes": (lambda p: p.model.score(graph(), Y), "nodes"),
    "recall at 0": (lambda p: p.model.recall_at_k(graph(), 0), "k is 0"),
    "recall of 3 classes": (lambda p: p.three.recall_at_k(small_user_graph(), 5), "two classes"),
    "environments of linear": (lambda p: p.model.environments(graph()), "'canet'"),
    # Diagnoses
    "diagnose no graph": (lambda p: diagnose(p.model), "new_data"),
    "diagnose before fit": (lambda _: diagnose(linear(), None, graph()), "fit"),
    "diagnose another model": (lambda _: diagnose(LogisticRegression(), graph()), "NodeClassifier"),
    "diagnose swapped": (lambda p: diagnose(graph(), p.model), "NodeClassifier"),
    "diagnose other columns": (lambda p: diagnose(p.model, None, graph(x=X[:, :2])), "2 features"),
    "repeats=0": (lambda p: p.diagnose(repeats=0), "repeats is 0"),
    "repeats='many'": (lambda p: p.diagnose(repeats="many"), "repeats"),
    "diagnose no nodes": (lambda p: p.diagnose(nodes=[]), "nodes"),
    "held_out=True": (lambda p: p.diagnose(held_out=True), "held_out"),
    "held_out=77": (lambda p: p.diagnose(held_out=77.0), "held_out"),
    "held_out='yes'": (lambda p: p.diagnose(held_out="yes"), "held_out"),
    "blocks of no column": (lambda p: p.diagnose(blocks={"a": [9]}), "9"),
    "blocks as a list": (lambda p: p.diagnose(blocks=["a"]), "blocks"),
    "save as pdf": (lambda p: p.diagnosis.save("page.pdf"), ".html"),
    "save a diagnosis as 3": (lambda p: p.diagnosis.save(3), "path"),
    "an unknown quantity": (lambda p: p.diagnosis.exceeded("expects<1"), "'expected'"),
    "no condition": (lambda p: p.diagnosis.exceeded("expected"), "expected<0.7"),
    # Models in folders
    "save again": (lambda p: p.model.save("model"), "overwrite"),
    "save elsewhere": (lambda p: p.model.save("january", overwrite=True), "other files"),
    "save below a file": (lambda p: p.model.save("text.pt/model"), "text.pt"),
    "save to /proc": (lambda p: p.model.save("/proc/model"), "/proc"),
    "save to 3": (lambda p: p.model.save(3), "path"),
    "load nowhere": (lambda _: load("nowhere"), "nowhere"),
    "load a graph": (lambda _: load("january"), "january"),
    "load a file": (lambda _: load("text.pt"), "text.pt"),
    "load a model": (lambda p: load(p.model), "NodeClassifier"),
    "load onto gpu": (lambda _: load("model", device="gpu"), "'cuda'"),
    "load without weights": (lambda _: load("broken"), "weights"),
    "load other weights": (
        lambda p: p.load_changed("weights-*", lambda text: text[:-9]),
        "weights",
    ),
    "load empty JSON": (lambda p: p.load_changed("*.json", lambda _: ""), "model.json"),
    "load edited JSON": (lambda p: p.load_changed("*.json", lambda t: t + " "), "model.json"),
    # Files
    "read nowhere": (lambda _: read("nowhere"), "nowhere"),
    "read nothing": (lambda _: read(None), "NoneType"),
    "read an empty folder": (lambda _: read("empty"), "nodes.csv"),
    "read nodes.csv": (lambda _: read("january/nodes.csv"), "folder"),
    "read xlsx": (lambda p: p.read_file("nodes.xlsx", b"PK"), "nodes.xlsx"),
    "read gz": (lambda p: p.read_file("nodes.csv.gz", b"\x1f\x8b"), "nodes.csv.gz"),
    "read an empty npz": (lambda p: p.read_file("no.npz"), "no.npz"),
    "read text as pt": (lambda _: read("text.pt"), "text.pt"),
    "read npz without x": (lambda p: p.read_npz(edge_index=EDGES), "'x'"),
    "read npz of objects": (lambda p: p.read_npz(x=np.array([{}] * 3), edge_index=EDGES), "'x'"),
    "read empty files": (lambda p: p.read("", ""), "empty"),
    "read a header": (lambda p: p.read("id,age,label\n"), "no rows"),
    "read semicolons": (lambda p: p.read(NODES.replace(",", ";")), "nodes.csv"),
    "read Latin-1": (lambda p: p.read(NODES.replace("a", "ä").encode("latin1")), "UTF-8"),
    "read UTF-16": (lambda p: p.read(NODES.encode("utf-16")), "UTF-8"),
    "read binary": (lambda p: p.read(bytes(range(256))), "nodes.csv"),
    "read a short line": (lambda p: p.read(NODES + "3\n"), "line 4"),
    "read a column twice": (lambda p: p.read(NODES.replace("age", "id")), "'id'"),
    "read unknown ids": (lambda p: p.read(NODES, "source,target\n1,9\n"), "'9'"),
    "read another id": (lambda p: p.read(NODES, "source,target\n5,6\n"), "id='age'"),
    "read other ends": (lambda p: p.read(NODES, "a,b\n1,2\n"), "source_column"),
    "read negative weights": (lambda p: p.read(NODES, "source,target,weight\n1,2,-3\n"), "weight"),
    "read text weights": (lambda p: p.read(NODES, "source,target,weight\n1,2,x\n"), "weight"),
    "read with a label": (lambda _: read("january", "topic"), "edges"),
    "read with utf-8": (lambda _: read("january", encoding="utf-8"), "UTF-8"),
    "read a label of a store": (lambda _: read("store", label="y"), "store"),
    "read a feature as label": (
        lambda p: read(*frames(), label="age", encoding=p.tables.encoding_),
        "'age'",
    ),
    "inspect nowhere": (lambda _: inspect("nowhere"), "nowhere"),
    "inspect a Data": (lambda _: inspect(graph()), "Data"),
    "inspect a misspelt label": (lambda _: inspect("january", label="topik"), "'topic'"),
    "inspect lable=": (lambda _: inspect("january", lable="topic"), "'label'"),
    "inspect a list": (lambda _: inspect("january", label=["topic"]), "label is"),
    "store of a folder": (lambda _: Store("january"), "january"),
    "store nowhere": (lambda _: Store("nowhere"), "nowhere"),
    "store 3": (lambda _: Store(3), "path"),
    "store array": (lambda _: Store("store").array("lables"), "'labels'"),
    "store split": (lambda _: Store("store").nodes("trian"), "'train'"),
    "write again": (lambda _: Writer("store", 3), "store"),
    "write 0 nodes": (lambda _: Writer("new", 0), "num_nodes"),
    "write many nodes": (lambda _: Writer("new", "many"), "num_nodes"),
    "write with 1GB": (lambda _: Writer("new", 3, memory="1GB"), "memory"),
    "write outside": (lambda _: Writer("new", 3).add_edges([0], [1]), "with GraphStoreWriter"),
    "load an unknown task": (lambda _: canet.load_task("coro"), "'cora'"),
    "settings of no method": (lambda _: canet.task_settings("cora", "cannet", "gcn"), "'canet'"),
    # Results that mislead
    "a leak": (lambda _: linear().fit(leaky()), "column '3'"),
    "no edges": (lambda _: linear().fit(graph(edge_index=EDGES[:, :0])), "no edges"),
    "an empty column": (lambda _: linear().fit(*tables(age=None), label="label"), "'age'"),
    "networkx weight": (lambda _: read(nx.karate_club_graph(), weight="wight"), "'weight'"),
    "decimal commas": (lambda _: linear().fit(*tables(age="1,5"), label="label"), "decimal=','"),
    "another separator": (lambda _: read("january", sep=";"), "sep=','"),
    "an unknown decimal": (lambda _: read("january", decimal="x"), "decimal"),
    "raw values": (
        lambda p: p.tables.predict(graph(x=X.repeat(1, 9)[:, : p.tables.n_features_in_])),
        "read_graph",
    ),
    "3e38": (lambda p: p.predict(x=torch.cat([X[:-1], X[-1:] * 0 + 3e38])), "3e+38"),
    "own training nodes": (
        lambda p: diagnose(p.model, graph(), graph(), repeats=1),
        "training nodes",
    ),
}


def fit_with(params: dict[str, Any], _: Place) -> object:
    return canet.NodeClassifier(**{"undirected": True} | params).fit(graph())


def fit_graph(changes: dict[str, Any], _: Place) -> object:
    return linear().fit(graph(**changes))


def fit_arguments(arguments: dict[str, Any], _: Place) -> object:
    return linear().fit(graph(), **arguments)


def fit_tables(changes: dict[str, Any], arguments: dict[str, Any], _: Place) -> object:
    return linear().fit(tables(**changes), **arguments)


def wrong_uses() -> Iterator[tuple[str, Use, str]]:
    """Yield name, call and word of every wrong use in Python."""
    for run, rows in {fit_with: PARAMETERS, fit_graph: GRAPHS, fit_arguments: FIT}.items():
        for number, (wrong, word) in enumerate(rows):
            yield f"{run.__name__} {' '.join(wrong)} {number}", partial(run, wrong), word
    for number, (changes, arguments, word) in enumerate(TABLES):
        yield f"fit tables {number}", partial(fit_tables, changes, arguments), word
    for name, (call, word) in CALLS.items():
        yield name, call, word
