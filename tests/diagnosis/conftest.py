import numpy as np
import pytest
from torch import Tensor

from canet.diagnosis import Diagnosis, diagnose
from tests.support.planted import planted, random_graph, sign_of

BLOCKS = {"read": [3], "ignored": [0, 1, 2]}


def by_first_column(x: Tensor) -> list[np.ndarray]:
    """One layer with two pseudo-environments, by the sign of column 0."""
    return [np.eye(2)[(x[:, 0] > 0).long().numpy()]]


def find(labelled: bool = True, training: bool = True) -> Diagnosis:
    """A model that uses column 3, which is 2 higher in the new graph, and infers environments."""
    data, new = random_graph(), random_graph(n=150, seed=1)
    new.x[:, 3] += 2
    if not labelled:
        del new.y
    model = planted(sign_of(3), data, posteriors=by_first_column)
    return diagnose(model, data if training else None, new, blocks=BLOCKS, repeats=2)


@pytest.fixture(scope="session")
def complete() -> Diagnosis:
    """With labels and both graphs."""
    return find()


@pytest.fixture(scope="session")
def unlabelled() -> Diagnosis:
    """With both graphs, the new one without labels."""
    return find(labelled=False)


@pytest.fixture(scope="session")
def new_alone() -> Diagnosis:
    """A new graph without labels, as the command line often has."""
    return find(labelled=False, training=False)


@pytest.fixture(scope="session")
def training_alone() -> Diagnosis:
    """The training graph alone, with a model that infers no environments."""
    data = random_graph()
    return diagnose(planted(sign_of(3), data), data, blocks=BLOCKS, repeats=2)
