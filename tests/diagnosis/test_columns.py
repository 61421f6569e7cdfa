import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import false_discovery_control, ks_2samp, kstwobign

from canet.diagnosis.columns import column_shifts, kolmogorov_smirnov, moments

RANDOM = np.random.default_rng(0)
NAMES = list("abc")


def test_the_distance_of_binary_columns_is_the_difference_of_rates() -> None:
    first, second = np.arange(100) < 30, np.arange(200) < 90
    effect, p_value = kolmogorov_smirnov(first.astype(float), second.astype(float))
    assert effect == pytest.approx(0.15)
    pooled = 120 / 300
    z = 0.15 / math.sqrt(pooled * (1 - pooled) * (1 / 100 + 1 / 200))
    assert p_value == pytest.approx(math.erfc(z / math.sqrt(2)))


@pytest.mark.parametrize("sparse", [False, True])
def test_distances_are_those_of_scipy(sparse: bool) -> None:
    def draw(n: int) -> np.ndarray:
        filled = RANDOM.normal(size=(n, 70))
        filled[:, 30:50] = filled[:, 30:50].round()
        filled[:, 50:] *= RANDOM.random((n, 20)) < 0.1
        return filled

    before, after = draw(90), draw(130) + 0.2
    pair = (sp.csr_matrix(before), sp.csr_matrix(after)) if sparse else (before, after)
    found = column_shifts(*pair, [str(i) for i in range(70)])
    tests = [ks_2samp(before[:, i], after[:, i], method="asymp") for i in range(70)]
    statistics = [float(test.statistic) for test in tests]
    assert [column.effect for column in found] == pytest.approx(statistics)
    each = math.sqrt(1 / 90 + 1 / 130)
    p_values = false_discovery_control([kstwobign.sf(test.statistic / each) for test in tests])
    assert [column.p_value for column in found] == pytest.approx(p_values.tolist())


def test_another_constant_is_a_complete_shift() -> None:
    (found,) = column_shifts(np.zeros((30, 1)), np.ones((30, 1)), ["a"])
    assert (found.before, found.after, found.effect) == (0.0, 1.0, 1.0)
    (same,) = column_shifts(np.ones((30, 1)), np.ones((30, 1)), ["a"])
    assert (same.effect, same.p_value, same.has_shifted) == (0.0, 1.0, False)


def test_p_values_are_corrected_for_the_number_of_columns() -> None:
    random = np.random.default_rng(1)
    before, after = random.normal(size=(200, 300)), random.normal(size=(200, 300))
    found = column_shifts(before, after, [str(i) for i in range(300)])
    assert min(column.p_value for column in found) > 0.05


def test_a_sparse_column_far_from_zero_has_a_deviation() -> None:
    x = np.zeros((400, 2))
    x[:, 0] = 1.7e9 + RANDOM.normal(size=400)
    x[::3, 1] = 1
    for sparse, dense in zip(moments(sp.csr_matrix(x)), moments(x), strict=True):
        assert sparse == pytest.approx(dense, rel=1e-6)
