"""Graphs in memory: pandas, Arrow, networkx."""

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import canet
from canet.data.graph_files import ReadOptions, read_columns, read_graph
from canet.errors import InputError, InputWarning
from tests.support.frames import frames

QUICK = {"epochs": 2, "hidden": 8}


def test_frames_equal_the_same_tables_in_files(tmp_path: Any) -> None:
    nodes, edges = frames()
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    expected = read_graph(tmp_path, label="label")
    arrow = (pa.Table.from_pandas(nodes), pa.Table.from_pandas(edges))
    for found in (
        read_graph(nodes, edges, label="label"),
        read_graph(*arrow, label="label"),
        read_graph(
            nodes.set_index("id"), edges.sample(frac=1, random_state=0).sort_index(), label="label"
        ),
        read_graph(nodes, edges.set_axis(edges.index + 7), label="label"),
    ):
        assert sorted(found.encoding.names) == sorted(expected.encoding.names)
        assert torch.equal(found.edge_index, expected.edge_index)
        assert found.y.tolist() == expected.y.tolist()
        assert found.node_id.tolist() == expected.node_id.tolist()
        assert found.x.numpy() == pytest.approx(expected.x.numpy(), abs=1e-6)


def test_a_model_of_frames_predicts_frames_by_name() -> None:
    nodes, edges = frames()
    model = canet.NodeClassifier("erm", undirected=True, **QUICK).fit(nodes, edges, label="label")
    later = frames(1)
    everything = model.predict_proba(later)
    assert everything.shape == (40, 2)
    chosen = model.predict_proba(later, nodes=["n7", "n3"])
    assert np.allclose(chosen, everything[[7, 3]], atol=1e-6)
    with pytest.raises(InputError, match="no node 'n99'"):
        model.predict(later, nodes=["n99"])


def test_a_networkx_graph_is_read_with_its_attributes() -> None:
    graph = nx.karate_club_graph()
    for node, degree in graph.degree():
        graph.nodes[node]["degree"] = degree
    found = read_graph(graph, label="club")
    assert found.num_nodes == 34
    assert found.edge_index.shape[1] == 2 * graph.number_of_edges()
    assert set(found.y) == {"Mr. Hi", "Officer"}
    source, target = found.edge_index[:, 0].tolist()
    assert found.edge_weight[0] == graph[source][target]["weight"]
    model = canet.NodeClassifier("erm", **QUICK).fit(graph, label="club")
    assert len(model.predict(graph)) == 34


def test_attributes_of_networkx_edges_are_named_and_can_be_the_weight() -> None:
    graph = nx.DiGraph()
    graph.add_node("a", age=1)
    graph.add_node("b", age=2)
    graph.add_edge("a", "b", amount=3, kind="card", source="web", tags={1})
    graph.add_edge("b", "a", amount=5, kind=7)
    with pytest.warns(InputWarning, match="amount, kind, tags") as caught:
        assert read_graph(graph).get("edge_weight") is None
    assert "weight=" in str(caught[0].message)
    with pytest.warns(InputWarning, match="ignored: kind, tags"):
        data = read_graph(graph, weight="amount")
    assert data.edge_weight.tolist() == [3, 5]
    with pytest.warns(InputWarning) as caught:  # also with the columns of a model
        again = read_graph(graph, encoding=data.encoding)
    assert again.edge_weight.tolist() == [3, 5]
    assert len(caught) == 1
    with pytest.raises(InputError, match="kind"):
        read_graph(graph, weight="kind")


def test_names_of_networkx_nodes_may_be_any_object() -> None:
    graph = nx.DiGraph()
    graph.add_node(("a", 1), size=3.0)
    graph.add_node(("b", 2), size=1.0)
    graph.add_edge(("a", 1), ("b", 2))
    found = read_graph(graph)
    assert found.node_id.tolist() == ["('a', 1)", "('b', 2)"]
    assert found.edge_index.tolist() == [[0], [1]]


def test_arguments_of_tables_are_rejected_for_arrays() -> None:
    data = read_graph(*frames(), label="label")
    with pytest.raises(InputError, match="label is for tables"):
        canet.NodeClassifier("erm").fit(data, label="label")
    with pytest.raises(InputError, match="did you mean 'without'"):
        canet.NodeClassifier("erm").fit(*frames(), label="label", witout=["age"])


def test_columns_of_edges_may_have_any_name() -> None:
    nodes, edges = frames()
    expected = read_graph(nodes, edges, label="label")
    renamed = edges.rename(columns={"source": "citing", "target": "cited"})
    ends = {"source_column": "citing", "target_column": "cited"}
    found = read_graph(nodes, renamed, label="label", **ends)
    assert torch.equal(found.edge_index, expected.edge_index)
    model = canet.NodeClassifier("erm", undirected=True, **QUICK)
    model.fit(nodes, renamed, label="label", **ends)
    assert len(model.predict((nodes, renamed))) == 40  # the names are those of training
    with pytest.raises(InputError, match="no columns 'source', 'target'"):
        read_graph(nodes, renamed)


def test_dates_and_formatted_numbers_in_text_are_parsed_but_digits_stay_text() -> None:
    nodes, edges = frames()
    nodes = nodes[["id", "label"]].assign(
        since=[f"2024-01-{1 + i % 28:02}" for i in range(40)],
        income=[f"{1000 * i:,}" for i in range(40)],
        postcode=[f"{10115 + i % 3}" for i in range(40)],
    )
    kinds = {c.name: c.kind for c in read_graph(nodes, edges, label="label").encoding.columns}
    assert kinds == {"since": "date", "income": "number", "postcode": "category"}


def test_a_graph_that_was_read_before_gets_the_weights_of_training() -> None:
    nodes, edges = frames()
    edges = edges.assign(flow=np.linspace(0, 3, len(edges)))
    model = canet.NodeClassifier("erm", undirected=True, **QUICK)
    model.fit(nodes, edges, label="label", weight="flow")
    expected = model.predict_proba((nodes, edges))
    with pytest.warns(canet.InputWarning, match="flow"):
        plain = read_graph(nodes, edges, label="label")
    assert np.array_equal(model.predict_proba(plain), expected)


def test_a_later_table_without_the_id_column_is_rejected() -> None:
    nodes, edges = frames()
    renamed = nodes.rename(columns={"id": "machine"})
    model = canet.NodeClassifier("erm", undirected=True, **QUICK)
    model.fit(renamed, edges, label="label", id="machine")
    with pytest.raises(InputError, match="no column 'machine'"):
        model.predict((nodes.drop(columns="id"), edges))


def test_statistics_ignore_rows_that_are_held_out() -> None:
    nodes, edges = frames()
    options = ReadOptions(held_out=np.arange(10))
    encoding = read_columns((nodes, edges), options).encoding
    column = next(column for column in encoding.columns if column.name == "age")
    assert column.mean == pytest.approx(nodes.age[10:].mean())


def test_choices_of_columns_survive_saving_and_apply_to_files(tmp_path: Any) -> None:
    def months(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        nodes, edges = frames(seed)
        nodes = nodes.rename(columns={"id": "Customer"}).assign(voucher=np.arange(40) % 3)
        edges = edges.rename(columns={"source": "a", "target": "b"})
        return nodes, edges.assign(amount=np.linspace(0.1, 2, len(edges)))

    model = canet.NodeClassifier("canet", "gat", undirected=True, **QUICK).fit(
        *months(0),
        label="label",
        id="Customer",
        source_column="a",
        target_column="b",
        weight="amount",
        without=["voucher"],
        fill="median",
    )
    model.save(tmp_path / "model")
    again, later = canet.load(tmp_path / "model"), months(1)
    folder = tmp_path / "later"
    folder.mkdir()
    later[0].to_csv(folder / "nodes.csv", index=False)
    later[1].to_csv(folder / "edges.csv", index=False)
    assert again.encoding_ == model.encoding_
    assert again.encoding_.fill == "median"
    assert again.encoding_.left_out == ("voucher",)
    expected = model.predict_proba(later)
    assert np.array_equal(again.predict_proba(later), expected)
    assert np.allclose(again.predict_proba(folder), expected, atol=1e-6)
    assert np.allclose(again.predict_proba(folder, nodes=["n3"]), expected[3:4], atol=1e-6)


def test_a_message_about_columns_names_the_fix() -> None:
    nodes = pd.DataFrame({"id": range(4), "a": [1, "x", 2.5, "y"], "kind": list("abab")})
    edges = pd.DataFrame({"u": [0, 1], "v": [1, 2]})
    named = edges.rename(columns={"u": "source", "v": "target"})
    plain = nodes.assign(a=[1.0, 2.0, 3.0, 5.0])
    encoding = canet.read_graph(plain, named, label="kind").encoding
    for tables, arguments, words in (
        ((nodes, named), {}, "column 'a' .*pandas.to_numeric"),
        ((plain, edges), {}, "source_column and target_column"),
        ((plain, named), {"label": "kindd"}, "did you mean 'kind'.* pass one of these names"),
        ((plain[["id", "kind"]], named), {"encoding": encoding}, "no column 'a'.* trained on"),
    ):
        with pytest.raises(canet.InputError, match=words):
            canet.read_graph(*tables, **arguments)
