"""Malformed graphs in every public function give a result or a canet error, and are not changed."""

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import canet
from canet.data.graph import check_graph
from canet.errors import CanetError
from tests.support.user_graphs import small_user_graph

QUICK = {"epochs": 1, "hidden": 4, "device": "cpu", "verbose": 0, "num_environments": 2}
CAREFUL = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
Draw = Callable[[st.SearchStrategy], Any]


def one_of(usual: Any, times: int, *others: Any) -> st.SearchStrategy:
    """Sample the usual value several times as often as each other value."""
    return st.sampled_from([*[usual] * times, *others])


@st.composite
def features(draw: Draw, n: int) -> Any:
    """Valid features [n, 5], or other values."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    x = torch.rand(n, 5, generator=random)
    extreme = x.clone()
    if n:
        extreme[0, 0] = draw(st.sampled_from([torch.nan, torch.inf, -torch.inf, 3.4e38, 1e30]))
    types = [x.double(), x.half(), x.bfloat16(), (9 * x).long(), x > 0.5, x.to(torch.complex64)]
    forms = [x.numpy(), x.tolist(), x.to_sparse_coo(), x.to_sparse_csr(), x.to_sparse_csc()]
    forms += [sp.coo_matrix(x.numpy()), x.clone().requires_grad_()]
    extremes = [extreme, extreme.to_sparse_csr(), extreme.double() * 1e300]
    shapes = [x[:, :4], x[: n // 2], x[:, 0], x[None], x[:, :0]]
    objects = [np.full((n, 5), "a"), np.full((n, 5), None), "features", None, 3.0]
    return draw(one_of(x, 8, *types, *forms, *extremes, *shapes, *objects))


@st.composite
def edges(draw: Draw, n: int) -> Any:
    random = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    e = torch.randint(max(n, 1), (2, 12), generator=random)
    beyond, below = e.clone(), e.clone()
    beyond[1, 3], below[0, 0] = n + draw(st.sampled_from([0, 10**12])), -1
    types = [e.int(), e.numpy().astype(np.uint16), e.tolist(), e.float(), e > 2]
    shapes = [e[:, :0], torch.empty(0, dtype=torch.long), e.t(), e[0], e[None]]
    shapes += [torch.cat([e, e[:1]]), [[0, 1], [1]]]
    others = [beyond, below, e.float().fill_(torch.nan), "edges", None]
    return draw(one_of(e, 8, *types, *shapes, *others))


@st.composite
def labels(draw: Draw, n: int) -> Any:
    y = np.arange(n) % 3
    some = np.where(np.arange(n) % 4 == 0, -1, y)
    tensors = [torch.from_numpy(y), torch.from_numpy(y)[:, None]]
    unlabelled = [np.where(some < 0, np.nan, y.astype(float)), np.full(n, -1)]
    unlabelled += [[None if v < 0 else int(v) for v in some]]
    unlabelled += [[None if v < 0 else f"class {v}" for v in some]]
    types = [y.astype(float), np.array(["a", "b", "c"])[y], y == 0, y.astype(np.uint64), y + 0.5]
    values = [np.where(np.arange(n) == 0, huge, y) for huge in (100_000, 2**62)]
    values += [np.zeros(n, dtype=int), np.full(n, np.inf)]
    shapes = [y[:, None] * np.ones(3), y[: n // 2], [[1]] * n]
    objects = [["a" if v else 1 for v in y], [{}] * n, "labels", None, 7]
    others = [*tensors, *unlabelled, *types, *values, *shapes, *objects]
    return draw(one_of(y, 4, *[some] * 4, *others))


@st.composite
def node_sets(draw: Draw, n: int) -> Any:
    mask = torch.rand(n, generator=torch.Generator().manual_seed(draw(st.integers(0, 9)))) > 0.5
    masks = [mask, mask.numpy(), mask.tolist(), ~mask, mask.long(), mask.float()]
    numbers = [mask.nonzero().squeeze(1), mask.nonzero(), torch.tensor([n]), [-1], [0, 0], []]
    shapes = [mask[: n // 2], mask[:, None].expand(n, 3)]
    return draw(one_of(None, 6, *masks, *numbers, *shapes, range(n), "train", 0))


@st.composite
def columns(draw: Draw, n: int) -> Any:
    """Environments, times or graph numbers."""
    two = np.arange(n) % 2
    numbers = [two, torch.from_numpy(two), torch.arange(n)[:, None], np.linspace(0, 1, n)]
    missing = [[None, *range(n - 1)], np.full(n, -1), np.full(n, np.nan)]
    missing += [np.full(n, "NaT", dtype="datetime64[s]")]
    others = [np.array(["x", "y"])[two], np.arange(n).astype("datetime64[D]"), np.arange(n + 1)]
    others += [np.arange(n) + 1j, [...] * n, "time", 3]
    return draw(one_of(None, 8, *numbers, *missing, *others))


@st.composite
def graphs(draw: Draw) -> Data:
    n = draw(st.sampled_from([24, 24, 24, 9, 2, 1, 0]))
    data = Data(x=draw(features(n)), edge_index=draw(edges(n)), y=draw(labels(n)))
    for name in ("train_mask", "val_mask", "test_mask"):
        if (nodes := draw(node_sets(n))) is not None:
            data[name] = nodes
    for name in ("environment", "time", "batch"):
        if (column := draw(columns(n))) is not None:
            data[name] = column
    return data


def attempt(act: Callable[[], Any], *given_data: Data) -> Any:
    """Call a function and return its result, or None after a canet error with one line.

    Assert that the graphs are not changed.
    """
    before = pickle.dumps([data.to_dict() for data in given_data])
    result, message = None, "no error"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = act()
        except CanetError as error:
            message = str(error)
    assert message
    assert "\n" not in message
    assert pickle.dumps([data.to_dict() for data in given_data]) == before
    return result


def check_predictions(model: canet.NodeClassifier, data: Data, nodes: Any = None) -> None:
    probabilities = attempt(lambda: model.predict_proba(data, nodes=nodes), data)
    if probabilities is not None:
        assert np.isfinite(probabilities).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
        assert len(model.predict(data, nodes=nodes)) == len(probabilities)
        assert np.isfinite(model.embed(data, nodes=nodes)).all()
        assert np.isfinite(model.novelty_score(data, nodes=nodes)).all()


@pytest.fixture(scope="module")
def trained() -> list[canet.NodeClassifier]:
    return [
        canet.NodeClassifier(method, backbone, **QUICK).fit(small_user_graph())
        for method, backbone in (("canet", "gcn"), ("canet", "transformer"), ("canet", "gat"))
    ]


@CAREFUL
@given(data=graphs(), method=st.sampled_from(["canet", "erm", "irm"]))
def test_fit_accepts_or_rejects_a_graph(data: Data, method: str) -> None:
    params = {k: v for k, v in QUICK.items() if method == "canet" or k != "num_environments"}
    model = attempt(lambda: canet.NodeClassifier(method, **params).fit(data), data)
    if model is not None:
        assert len(model.classes_) >= 2
        check_predictions(model, data)


@CAREFUL
@given(data=graphs(), draw=st.data())
def test_arguments_of_fit_are_accepted_or_rejected(data: Data, draw: st.DataObject) -> None:
    n = 24
    arguments = {
        "train": draw.draw(node_sets(n)),
        "valid": draw.draw(node_sets(n)),
        "environment": draw.draw(columns(n)),
        "time": draw.draw(columns(n)),
        "batch": draw.draw(columns(n)),
    }
    attempt(lambda: canet.NodeClassifier("canet", **QUICK).fit(data, **arguments), data)


@CAREFUL
@given(data=graphs(), which=st.integers(0, 2), draw=st.data())
def test_a_trained_model_accepts_or_rejects_a_new_graph(
    trained: list[canet.NodeClassifier], data: Data, which: int, draw: st.DataObject
) -> None:
    model = trained[which]
    check_predictions(model, data, draw.draw(node_sets(24)))
    score = attempt(lambda: model.score(data), data)
    assert score is None or 0 <= score <= 1
    attempt(lambda: model.environments(data), data)


@settings(CAREFUL, max_examples=15)
@given(data=graphs(), new=graphs())
def test_a_diagnosis_accepts_or_rejects_graphs(
    trained: list[canet.NodeClassifier], data: Data, new: Data
) -> None:
    attempt(lambda: canet.diagnose(trained[0], data, new, repeats=1), data, new)
    attempt(lambda: canet.diagnose(trained[0], None, new, repeats=1), new)


@CAREFUL
@given(data=graphs(), draw=st.data())
def test_a_task_is_created_or_rejected(data: Data, draw: st.DataObject) -> None:
    sets = [draw.draw(node_sets(24)) for _ in range(4)]
    names = ("train", "valid", "test_id", "in_distribution")
    metric = draw.draw(st.sampled_from(["accuracy", "roc_auc", "macro_f1", "acuracy", 3]))
    attempt(
        lambda: canet.ShiftTask(
            name="any",
            data=data,
            test_ood={"later": draw.draw(node_sets(24))},
            metric=metric,
            shift="any",
            **dict(zip(names, sets, strict=True)),
        ),
        data,
    )


@pytest.mark.parametrize("wrong", [None, 3, "graph", {}, [1], torch.ones(3, 3), Data()])
def test_other_objects_than_graphs_are_rejected(
    trained: list[canet.NodeClassifier], wrong: Any
) -> None:
    for act in (
        check_graph,
        trained[0].predict,
        trained[0].score,
        canet.NodeClassifier("canet", **QUICK).fit,
    ):
        with pytest.raises(CanetError):
            act(wrong)
