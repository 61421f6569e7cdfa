import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from canet.data.graph_files.encoding import ColumnEncoding, Encoding
from canet.diagnosis.blocks import MAX_BLOCKS, OTHERS, Blocks, chosen_blocks, feature_blocks
from canet.errors import InputError
from tests.support.planted import Planted, planted, random_graph, sign_of


@pytest.fixture
def model() -> Planted:
    return planted(sign_of(3), random_graph(columns=6))


def numbered(blocks: dict[str, np.ndarray]) -> dict[str, list[int]]:
    return {name: columns.tolist() for name, columns in blocks.items()}


def test_given_blocks_take_numbers_slices_and_masks(model: Planted) -> None:
    mask = np.array([False, False, False, True, False, False])
    given = {"a": [2, 0], "b": slice(3, 5), "c": mask, "d": 0}
    expected = {"a": [0, 2], "b": [3, 4], "c": [3], "d": [0], OTHERS: [1, 5]}
    assert numbered(feature_blocks(model, given)) == expected
    assert numbered(feature_blocks(model, {"all": slice(None)})) == {"all": [0, 1, 2, 3, 4, 5]}


def test_given_blocks_take_column_names(model: Planted) -> None:
    model.feature_names_in_ = np.array(list("uvwxyz"), dtype=object)
    assert numbered(feature_blocks(model, {"a": ["w", "u"]}))["a"] == [0, 2]
    with pytest.raises(InputError, match="unknown column of block 'a' 'q'"):
        feature_blocks(model, {"a": ["q"]})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "blocks must be"),
        ({"a": []}, "block 'a'"),
        ({"a": [4, 6]}, "4 to 6"),
        ({"a": [-1]}, "-1"),
        ({"a": [0.5]}, "columns of type float64"),
        ({"a": np.array([True, False])}, "columns of type bool"),
    ],
)
def test_invalid_blocks_are_rejected(model: Planted, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        feature_blocks(model, given)


def test_each_column_of_a_table_is_a_block(model: Planted) -> None:
    colour = ColumnEncoding("colour", "category", categories=("blue", "green", "red"))
    numbers = [ColumnEncoding(name, "number") for name in ("age", "size", "price")]
    encoding = Encoding((numbers[0], colour, *numbers[1:]))
    model.encoding_ = encoding
    model.feature_names_in_ = np.array(encoding.names, dtype=object)
    expected = {"age": [0], "colour": [1, 2, 3], "size": [4], "price": [5]}
    assert numbered(feature_blocks(model)) == expected


def test_few_columns_without_names_are_a_block_each(model: Planted) -> None:
    expected = {f"column {i}": [i] for i in range(6)}
    assert numbered(feature_blocks(model)) == expected


def blocks_of(x: Any, names: list[str] | None = None, read: int = 0) -> Blocks:
    """The blocks of a model that reads one column."""
    column = x[:, [read]].toarray() if sp.issparse(x) else x[:, [read]]
    every = [str(i) for i in range(x.shape[1])] if names is None else names
    return chosen_blocks(x, every, np.hstack([column, -column]), np.arange(x.shape[1]))


def factors(random: np.random.Generator, n: int = 500) -> np.ndarray:
    """Three groups of ten columns, each group one factor with noise; signs are random."""
    signal = random.normal(size=(n, 3)).repeat(10, axis=1) * random.choice([-1, 1], 30)
    return signal + 0.3 * random.normal(size=(n, 30))


@pytest.mark.parametrize("unit", [1, 1e-30, 1e20])
def test_correlated_columns_form_a_block(unit: float) -> None:
    x = unit * factors(np.random.default_rng(0))
    blocks = blocks_of(x)
    thirds = {f"columns {i}-{i + 9}": list(range(i, i + 10)) for i in (0, 10, 20)}
    assert numbered(blocks) == thirds


@pytest.mark.parametrize("sparse", [False, True])
def test_all_columns_are_in_one_block_but_constants_in_none(sparse: bool) -> None:
    random = np.random.default_rng(0)
    words = (random.random((300, 200)) < 0.1).astype(np.float32)
    words[0], words[:, 7] = 1, 0
    x = sp.csr_matrix(words) if sparse else words
    blocks = blocks_of(x, read=33)
    assert next(iter(blocks)) == "column 33"
    assert list(blocks)[-1] == OTHERS
    assert len(blocks) == MAX_BLOCKS + 1
    assert sorted(np.concatenate(list(blocks.values()))) == [*range(7), *range(8, 200)]


def test_a_shifted_column_that_the_model_uses_is_a_block_of_its_own() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 60))
    score = 2 * x[:, 0] + 0.5 * x[:, 40] + random.normal(size=300)
    shifts = np.where(np.arange(60) == 40, 0.9, 0.0)
    names, source = [str(i) for i in range(60)], np.arange(60)
    found = chosen_blocks(x, names, score[:, None], source, shifts)
    assert list(found)[:2] == ["column 40", "column 0"]
    assert found["column 40"].tolist() == [40]
    # Without any shift, the order is that of the use.
    assert list(chosen_blocks(x, names, score[:, None], source))[:2] == ["column 0", "column 40"]


def test_blocks_are_named_after_their_columns() -> None:
    x = factors(np.random.default_rng(0))
    shuffled = np.random.default_rng(0).permutation(30)
    name = next(iter(blocks_of(x[:, shuffled])))
    assert re.fullmatch(r"columns 0, \d+, \.\.\. \(10\)", name)
    names = [f"f{i}" for i in range(30)]
    assert next(iter(blocks_of(x, names))) == "f0, f1, ... (10)"


@pytest.mark.parametrize("shape", [(1, 20), (2, 20), (50, 20)])
def test_features_that_never_vary_are_one_block(shape: tuple[int, int]) -> None:
    assert numbered(blocks_of(np.ones(shape), ["c"] * 20)) == {OTHERS: list(range(20))}


def test_two_rows_are_enough() -> None:
    x = np.random.default_rng(0).normal(size=(2, 20))
    assert blocks_of(x)


def test_a_sparse_column_far_from_zero_is_in_a_block() -> None:
    random = np.random.default_rng(0)
    x = (random.random((300, 60)) < 0.1).astype(np.float64)
    x[:, 5] = 1.7e9 + random.normal(size=300)
    assert any(5 in columns for columns in blocks_of(sp.csr_matrix(x)).values())


def test_categories_of_one_of_many_columns_stay_together(model: Planted) -> None:
    random = np.random.default_rng(0)
    text = ColumnEncoding("colour", "category", categories=("blue", "green", "red"))
    encoding = Encoding((text, *(ColumnEncoding(f"n{i}", "number") for i in range(50))))
    x = np.hstack([np.eye(3)[random.integers(3, size=300)], random.normal(size=(300, 50))])
    data = random_graph(300, 53)
    data.x = torch.from_numpy(x.astype(np.float32))
    model = planted(sign_of(1), data)
    model.encoding_ = encoding
    model.feature_names_in_ = np.array(encoding.names, dtype=object)
    assert [0, 1, 2] in numbered(feature_blocks(model)).values()
