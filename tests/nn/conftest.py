"""Every test here computes in double precision, from the same random state."""

import pytest

from tests.support.precision import double_precision

double = pytest.fixture(autouse=True)(double_precision)
