import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear, minimize
from torch import Tensor

from canet.data import load_task
from canet.defaults import unsearched
from canet.errors import CanetError
from canet.methods import mean_matching, sr_gnn
from canet.methods.mean_matching import Discrepancy, mean_matching_weights
from canet.models import Trainer
from canet.util.torch_state import seeded

SAMPLE = 300  # number of weights in the tests: a hard problem that is solved quickly


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def one_class(source: Tensor) -> Tensor:
    return torch.zeros(len(source), dtype=torch.long)


def squared_discrepancy(beta: Tensor, source: Tensor, target: Tensor) -> float:
    """The squared distance of the two means in the feature space, by its kernel."""
    scale = torch.cdist(source, target).square().median()

    def kernel(first: Tensor, second: Tensor) -> Tensor:
        total = 0.0
        for width in (1.0, 0.1, 0.001):
            total = total + (-width * torch.cdist(first, second).square() / scale).exp() / 3
        return torch.as_tensor(total)

    share = beta / len(source)
    within = share @ kernel(source, source) @ share
    across = share @ kernel(source, target).mean(dim=1)
    return float(within - 2 * across + kernel(target, target).mean())


def least_squares(source: Tensor, target: Tensor, y: Tensor, low: float, high: float) -> np.ndarray:
    """The same weights from scipy's trust-region reflective least squares.

    The discrepancy is a sum of squares, $\\|R \\beta - r\\|^2$ with $2 R^\\top R = Q$; the sums
    of the classes are additional rows, with a weight such that they hold to about 1e-7.
    """
    discrepancy = Discrepancy.between(source, target)
    values, vectors = np.linalg.eigh(discrepancy.quadratic / 2)
    kept = values > values.max() * 1e-14
    root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    side = vectors[:, kept].T @ discrepancy.linear / 2 / np.sqrt(values[kept])
    classes = np.stack([(y == c).double().numpy() for c in y.unique()])
    heavy = 1e3 * np.abs(root).max()
    found = lsq_linear(
        np.concatenate([root, heavy * classes]),
        np.concatenate([side, heavy * classes.sum(axis=1)]),
        bounds=(low, high),
        method="trf",
        tol=1e-13,
        max_iter=500,
    )
    assert np.abs(classes @ found.x - classes.sum(axis=1)).max() < 1e-3
    return np.asarray(found.x)


def test_discrepancy_is_that_of_the_means() -> None:
    source, target = torch.randn(8, 3).double(), torch.randn(5, 3).double()
    beta = torch.rand(8).double()
    ours = Discrepancy.between(source, target)(beta.numpy())
    assert ours == pytest.approx(squared_discrepancy(beta, source, target))


def test_weights_are_larger_near_the_target() -> None:
    source = torch.cat([torch.randn(30, 2), torch.randn(10, 2) + 4]).double()
    target = torch.cat([torch.randn(10, 2), torch.randn(30, 2) + 4]).double()
    weights = mean_matching_weights(source, target, one_class(source), 0.0, 10.0)
    assert weights[:30].mean() < 0.5
    assert weights[30:].mean() > 2
    assert weights.mean().item() == pytest.approx(1)


def test_matched_samples_keep_weight_one() -> None:
    source = torch.randn(20, 3).double()
    weights = mean_matching_weights(source, source.flip(0), one_class(source), 0.2, 10.0)
    torch.testing.assert_close(weights, torch.ones_like(weights), atol=1e-2, rtol=0)


def test_features_all_equal_keep_weight_one() -> None:
    source = torch.ones(5, 3).double()
    weights = mean_matching_weights(source, source[:4], one_class(source), 0.2, 10.0)
    torch.testing.assert_close(weights, torch.ones(5).double())


def test_an_upper_bound_of_one_leaves_no_choice() -> None:
    source = torch.randn(6, 2).double()
    weights = mean_matching_weights(source, source + 1, one_class(source), 0.2, 1.0)
    assert weights.equal(torch.ones(6).double())


def test_a_tight_tolerance_gives_the_optimum_of_sequential_quadratic_programming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mean_matching, "TOLERANCE", 1e-9)
    source, target = torch.randn(6, 2).double(), torch.randn(9, 2).double() + 0.7
    y, low, high = torch.tensor([0, 0, 0, 0, 1, 1]), 0.2, 2.5
    ours = mean_matching_weights(source, target, y, low, high)
    reference = minimize(
        lambda beta: 1e3 * squared_discrepancy(torch.from_numpy(beta), source, target),
        np.ones(6),
        method="SLSQP",
        bounds=[(low, high)] * 6,
        constraints=[
            {"type": "eq", "fun": lambda beta: beta[:4].sum() - 4},
            {"type": "eq", "fun": lambda beta: beta[4:].sum() - 2},
        ],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert reference.success
    np.testing.assert_allclose(ours.numpy(), reference.x, atol=1e-3)


def test_weights_that_are_not_the_optimum_are_never_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mean_matching, "MAX_STEPS", 2)
    source = torch.randn(30, 2).double()
    with pytest.raises(CanetError, match="did not converge"):
        mean_matching_weights(source, source + 1, one_class(source), 0.2, 10.0)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["synthetic", "cora", "twitch"])
def test_discrepancy_is_that_of_an_independent_solver(
    task: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Within 1 % of bounded least squares, on the features and bounds of a run."""
    root = None if task == "synthetic" else request.getfixturevalue("data_root")
    solved: list[tuple[Tensor, Tensor, Tensor, float, float]] = []
    monkeypatch.setattr(sr_gnn, "MAX_SAMPLE", SAMPLE)
    monkeypatch.setattr(
        sr_gnn,
        "mean_matching_weights",
        lambda *given: solved.append(given) or mean_matching_weights(*given),
    )
    settings = unsearched(task, "sr_gnn", "gcn")
    trainer = Trainer(load_task(task, root), "sr_gnn", "gcn", settings, "cpu")
    with seeded(0, torch.device("cpu")):
        trainer.learner.new_method(trainer.task).prepare(trainer.fields.view())
    (given,) = solved
    discrepancy = Discrepancy.between(*given[:2])
    ours = discrepancy(mean_matching_weights(*given).numpy())
    theirs = discrepancy(least_squares(*given))
    assert ours < 0.5 * discrepancy(np.ones(SAMPLE)), "weights of one are far from the optimum"
    assert ours == pytest.approx(theirs, rel=0.01)
