import numpy as np
import pytest
import scipy.sparse as sp

from canet.diagnosis.two_sample import TwoSample, auc_variance, match_nodes, two_sample_test
from canet.util.sparse import Matrix


def compare(first: Matrix, second: Matrix, seed: int = 0) -> TwoSample | None:
    return two_sample_test(first, second, match_nodes(first, second), seed)


def test_samples_of_one_distribution_are_not_separated() -> None:
    random = np.random.default_rng(1)
    draws = random.normal(size=(8, 2, 200, 5))
    found = [compare(first, second, seed) for seed, (first, second) in enumerate(draws)]
    assert np.mean([one.auc.value for one in found]) == pytest.approx(0.5, abs=0.03)
    assert sum(one.p_value < 0.05 for one in found) <= 1
    assert sum(one.auc.low <= 0.5 <= one.auc.high for one in found) >= 7


def test_distant_samples_are_separated_perfectly() -> None:
    random = np.random.default_rng(0)
    found = compare(random.normal(size=(300, 3)), random.normal(size=(200, 3)) + 9)
    assert found.auc.value > 0.99
    assert found.effect > 0.98
    assert found.p_value < 1e-10


def test_a_shift_that_no_column_shows_alone_is_found() -> None:
    random = np.random.default_rng(0)
    before = random.choice([-1.0, 1.0], (1000, 2))
    after = random.choice([-1.0, 1.0], (1000, 1)).repeat(2, axis=1)
    assert compare(before, after).auc.value > 0.7


def changed_copies(shift: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 6))
    later = x + 0.01 * random.normal(size=x.shape)
    later[:, 0] += shift
    return x, later


def test_slightly_changed_nodes_in_both_samples_do_not_lower_the_auc() -> None:
    assert compare(*changed_copies(0)).auc.value == pytest.approx(0.5, abs=0.03)
    found = compare(*changed_copies(0.5))
    assert found.effect > 0.15
    assert found.p_value < 0.001


def test_nodes_with_known_ids_are_compared_on_a_single_column() -> None:
    x, later = (part[:, 1:3] for part in changed_copies(0))
    found = two_sample_test(x, later, np.tile(np.arange(600), 2))
    assert found.auc.value == pytest.approx(0.5, abs=0.03)


def test_an_auc_clearly_below_one_half_gives_no_result() -> None:
    x, later = changed_copies(0)
    assert two_sample_test(x, later, np.arange(1200)) is None


@pytest.mark.parametrize("scale", [1e-4, 1, 1e6])
def test_unchanged_nodes_in_both_samples_do_not_lower_the_auc(scale: float) -> None:
    x, _ = changed_copies(0)
    assert compare(scale * x, scale * x).auc.value == 0.5


def test_many_sparse_columns_are_reduced() -> None:
    before, after = (sp.random(200, 100, 0.1, "csr", random_state=i) for i in (0, 1))
    assert compare(before, after).auc.value == pytest.approx(0.5, abs=0.1)
    after = after.tolil()
    after[:, :20] = 1
    assert compare(before, after.tocsr()).auc.value > 0.95


def test_too_few_rows_give_no_result() -> None:
    assert compare(np.zeros((19, 2)), np.zeros((500, 2))) is None


def test_the_null_variance_is_that_of_the_rank_sum() -> None:
    assert auc_variance(0.5, 40, 60) == pytest.approx((40 + 60 + 1) / (12 * 40 * 60))
    assert auc_variance(1.0, 40, 60) == 0
