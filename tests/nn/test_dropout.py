import pytest
import torch

from canet.nn.dropout import dropout


def test_nothing_is_dropped_when_predicting_or_with_probability_zero() -> None:
    x = torch.randn(7, 3)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.9])
def test_share_of_zeros_and_mean_are_those_of_dropout(p: float) -> None:
    dropped = dropout(torch.ones(400, 1001), p, training=True)
    assert (dropped == 0).double().mean().item() == pytest.approx(p, abs=0.004)
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.01)
    kept = dropped[dropped != 0]
    assert kept.unique().numel() == 1
    assert kept[0].item() == pytest.approx(1 / (1 - p), rel=1e-4)


@pytest.mark.parametrize("p", [0.999, 0.9999])
def test_mean_stays_when_almost_everything_is_dropped(p: float) -> None:
    draws = 4_000_000
    dropped = dropout(torch.ones(draws), p, training=True)
    deviation = dropped.double().std().item() / draws**0.5
    assert dropped.double().mean().item() == pytest.approx(1.0, abs=5 * deviation)


@pytest.mark.parametrize("lane", range(4))
def test_entries_that_share_a_draw_are_independent(lane: int) -> None:
    kept = (dropout(torch.ones(100_000, 4), 0.5, training=True) != 0).double()
    others = [i for i in range(4) if i != lane]
    assert kept[:, lane].mean().item() == pytest.approx(0.5, abs=0.01)
    for other in others:
        both = (kept[:, lane] * kept[:, other]).mean().item()
        assert both == pytest.approx(0.25, abs=0.01)


def test_gradient_is_dropped_and_scaled_like_the_value() -> None:
    x = torch.randn(5, 3, requires_grad=True)
    out = dropout(x, 0.5, training=True)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert (gradient * x).equal(out)


def test_same_seed_gives_the_same_mask_and_any_shape_is_served() -> None:
    for shape in [(0, 3), (1,), (5,), (3, 7), (4, 4)]:
        torch.manual_seed(1)
        first = dropout(torch.ones(shape), 0.3, training=True)
        torch.manual_seed(1)
        assert first.equal(dropout(torch.ones(shape), 0.3, training=True))
        assert first.shape == shape
