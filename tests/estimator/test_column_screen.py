"""Columns that shift between groups, planted and by chance."""

import pytest
import torch
from torch import Tensor

from canet.estimator.column_screen import MAX_ENVIRONMENTS, ColumnScreen, screen_columns, view_of
from canet.methods import InterventionSettings, Settings
from canet.methods.interventions import infer_groups, spread_between

NO_ENVIRONMENTS = torch.empty(0, dtype=torch.long)
PLAIN = Settings()


def worlds(n: int = 400) -> tuple[Tensor, Tensor, Tensor]:
    """Features, classes and worlds: column 0 depends on the class, columns 4 and 8 on the world."""
    random = torch.Generator().manual_seed(0)
    y, world = torch.randint(2, (n,), generator=random), torch.arange(n) % 3
    x = torch.randn(n, 30, generator=random)
    x[:, 0] += 5 * y
    x[:, 4] += 4 * world
    x[:, 8] -= 4 * world
    return x, y, world


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_shifted_columns_are_found_with_and_without_environments(sparse: bool, given: bool) -> None:
    x, y, world = worlds()
    environment = world if given else NO_ENVIRONMENTS
    found = screen_columns(x.to_sparse_csr() if sparse else x, y, environment, PLAIN)
    assert found is not None
    assert found.is_shifted.nonzero().squeeze(1).tolist() == [4, 8]
    assert found.given.item() == given
    assert found.num_groups.item() == (3 if given else 6)
    assert 0 < found.chance.item() < 0.14
    if given:
        means = torch.stack([x[world == g, 4].mean() for g in range(3)])
        assert found.spread[4].item() == pytest.approx(means.std().item(), rel=0.05)


def test_a_share_below_chance_is_not_a_shift() -> None:
    def screen(chance: float) -> ColumnScreen:
        share = torch.tensor([0.1, 0.2, 0.5])
        return ColumnScreen(share, share, torch.tensor(chance), torch.tensor(6), torch.tensor(True))

    assert screen(0.0).is_shifted.tolist() == [False, True, True]
    assert screen(0.3).is_shifted.tolist() == [False, False, True]


def test_rare_columns_of_few_nodes_are_not_shifted() -> None:
    random = torch.Generator().manual_seed(1)
    y, world = torch.arange(120) % 6, torch.randint(3, (120,), generator=random)
    words = (torch.rand(120, 800, generator=random) < 0.03).float()
    found = screen_columns(words.to_sparse_csr(), y, world, PLAIN)
    assert found is not None
    assert (found.share >= 0.14).sum() > 5
    assert found.is_shifted.sum() <= 3


def test_groups_are_those_of_the_interventions_that_the_model_was_trained_with() -> None:
    x, y, world = worlds()
    inferred = InterventionSettings(interventions="inferred", num_groups=4)
    found = screen_columns(x, y, world, inferred)
    assert found is not None
    assert (found.num_groups.item(), found.given.item()) == (4, False)


@pytest.mark.parametrize("environment", ["some", "one", "many"])
def test_incomplete_or_too_many_environments_are_not_used_as_groups(environment: str) -> None:
    x, y, world = worlds()
    numbers = {
        "some": world - 1,
        "one": torch.zeros_like(world),
        "many": torch.arange(400) % (MAX_ENVIRONMENTS + 1),
    }
    found = screen_columns(x, y, numbers[environment], PLAIN)
    plain = screen_columns(x, y, NO_ENVIRONMENTS, PLAIN)
    assert found is not None
    assert plain is not None
    assert not found.given
    assert found.share.equal(plain.share)


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(1, 1),
        torch.randn(1, 5),
        torch.randn(5, 5),
        torch.randn(40, 1),
        torch.zeros(40, 5),
        torch.zeros(40, 5).to_sparse_csr(),
        torch.arange(40)[:, None].repeat(1, 3) % 2 * torch.ones(3),
    ],
    ids=["node", "row", "few", "column", "nothing", "nothing sparse", "class alone"],
)
def test_no_screen_with_too_few_nodes_or_columns(x: Tensor) -> None:
    y = torch.arange(x.shape[0]) % 2
    assert screen_columns(x, y, NO_ENVIRONMENTS, PLAIN) is None


def test_no_screen_if_no_class_has_enough_nodes_in_two_groups() -> None:
    x, _, world = worlds(60)
    assert screen_columns(x, torch.arange(60), world, PLAIN) is None
    assert screen_columns(x, world, world, PLAIN) is None


@pytest.mark.parametrize("columns", [3, 5, 10, 20, 50])
def test_noise_does_not_shift_between_groups_inferred_from_it(columns: int) -> None:
    random = torch.Generator().manual_seed(columns)
    x, y = torch.randn(600, columns, generator=random), torch.arange(600) % 2
    x[:, 2] *= 3
    nodes = torch.arange(600)
    plain = spread_between(x, nodes, y, infer_groups(view_of(x, y, NO_ENVIRONMENTS), 6), 6)
    found = screen_columns(x, y, NO_ENVIRONMENTS, PLAIN)
    assert plain.share[2] > 0.5
    assert found is not None
    assert not found.is_shifted.any()
    assert found.share.max() < 0.14


def test_the_share_of_a_shifted_column_uses_groups_of_the_other_columns() -> None:
    x, y, _ = worlds()
    found = screen_columns(x, y, NO_ENVIRONMENTS, PLAIN)
    assert found is not None
    for column in (4, 8):
        others = [j for j in range(30) if j != column]
        group = infer_groups(view_of(x[:, others], y, NO_ENVIRONMENTS), 6)
        expected = spread_between(x, torch.arange(400), y, group, 6)
        assert found.share[column] == expected.share[column]
        assert found.spread[column] == expected.spread[column]


def test_categories_of_one_noise_column_do_not_shift() -> None:
    random = torch.Generator().manual_seed(0)
    category = torch.randint(6, (600,), generator=random)
    x = torch.cat([torch.eye(6)[category], 0.1 * torch.randn(600, 3, generator=random)], dim=1)
    y, source = torch.arange(600) % 2, [0] * 6 + [1, 2, 3]
    alone = screen_columns(x, y, NO_ENVIRONMENTS, PLAIN)
    found = screen_columns(x, y, NO_ENVIRONMENTS, PLAIN, source)
    assert alone is not None
    assert found is not None
    assert alone.is_shifted[:6].any()
    assert not found.is_shifted.any()
