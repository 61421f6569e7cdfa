"""Products with rounded factors."""

import torch

from experiments.rounded_products import Rounded, round_to_tf32


def test_factors_are_rounded_to_eleven_bits_and_sums_are_not() -> None:
    x = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, -3.1415927])
    assert round_to_tf32(x).tolist() == [1.0, 1 + 2**-10, 1.0, 1 + 2**-9, -3.140625]
    a, b = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with Rounded():
        product = a @ b
    expected = round_to_tf32(a.detach()) @ round_to_tf32(b.detach())
    assert torch.equal(product, expected)
    assert not torch.equal(product, a @ b)
