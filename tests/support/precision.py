"""Tests in double precision, from the same random state."""

from collections.abc import Iterator

import torch


def double_precision() -> Iterator[None]:
    """Make it a fixture: `double = pytest.fixture(autouse=True)(double_precision)`."""
    torch.default_generator.manual_seed(0)  # faster than for all devices
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
