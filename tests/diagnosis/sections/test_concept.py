import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Data

from canet.diagnosis.sections import concept
from canet.diagnosis.sections.concept import Concept, compute
from tests.support.planted import make_context, planted, random_graph, sign_of


def graph(strength: float, seed: int, n: int = 600, positive: float = 0.5) -> Data:
    """Column 0 has a relation to the label of this strength, column 1 always the same."""
    random = np.random.default_rng(seed)
    y = torch.from_numpy((random.random(n) < positive).astype(np.int64))
    data = random_graph(n, seed=seed)
    data.x[:, 0] += strength * y
    data.x[:, 1] += 1.5 * y
    data.y = y
    return data


def found(new: Data, training: Data | None = None) -> Concept | None:
    return compute(make_context(planted(sign_of(0), training or graph(1.5, 0)), new))


@pytest.mark.parametrize("strength", [0.0, -1.5])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_less_predictive_column_is_found(strength: float, sparse: bool) -> None:
    training, new = graph(1.5, 0), graph(strength, 1)
    if sparse:
        training.x, new.x = training.x.to_sparse_csr(), new.x.to_sparse_csr()
    seen = found(new, training)
    assert [relation.column for relation in seen.weaker] == ["a"]
    first = seen.relations[0]
    assert first.before == pytest.approx(0.86, abs=0.03)
    assert first.after == pytest.approx(0.5 if strength == 0 else 0.14, abs=0.05)
    assert len(seen.relations) == 6


@pytest.mark.parametrize("sparse", [False, True])
def test_relations_are_areas_under_the_curve(sparse: bool) -> None:
    data = graph(1.5, 0, n=200)
    data.x[:, 2] = data.x[:, 2].round()
    data.x[:, 3:] *= data.x[:, 3:] > 0.8
    areas = [roc_auc_score(data.y, column) for column in data.x.T]
    if sparse:
        data.x = data.x.to_sparse_csr()
    seen = found(data, data)
    before = {relation.column: relation.before for relation in seen.relations}
    assert [before[name] for name in "abcdef"] == pytest.approx([max(a, 1 - a) for a in areas])


def test_other_class_rates_and_means_do_not_weaken_a_relation() -> None:
    new = graph(1.5, 1, n=2000, positive=0.1)
    new.x += 5
    seen = found(new)
    assert seen.weaker == []


def test_columns_of_noise_are_hardly_ever_found() -> None:
    false = 0
    for seed in range(20):
        seen = found(graph(1.5, 100 + seed, n=200), graph(1.5, seed, n=200))
        false += bool(seen.weaker)
    assert false <= 2


def test_without_labels_there_is_no_result() -> None:
    new = graph(0.0, 1)
    new.y[:] = 1
    assert found(new) is None
    del new.y
    assert found(new) is None


def test_the_number_of_columns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concept, "MAX_COLUMNS", 2)
    training, new = graph(1.5, 0), graph(0.0, 1)
    for data in (training, new):
        data.x[::2, 2:] = 0
    few = found(new, training)
    assert {relation.column for relation in few.relations} == {"a", "b"}
