from __future__ import annotations

import subprocess
import sys

import pytest

import canet
from canet.methods import METHODS, Batch, Method
from canet.training import Trainer
from tests.training.tiny import QUICK, tiny_task


@pytest.mark.parametrize("name", canet.__all__)
def test_what_people_use_is_at_hand(name: str) -> None:
    assert getattr(canet, name) is not None
    assert name in dir(canet)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        canet.Trainr  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import sys, canet; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_method_from_outside_the_package_is_trained_by_its_class() -> None:
    class Doubled(Method):
        name = "doubled"
        summary = paper = "twice the plain loss"

        def loss(self, batch: Batch) -> object:
            return 2 * self.node_losses(self.predict(batch), batch.y).mean()

    ours = Trainer(tiny_task(), Doubled, settings=QUICK, device="cpu").run()
    plain = Trainer(tiny_task(), "erm", settings=QUICK, device="cpu").run()
    assert ours.config.method == "doubled"
    assert "doubled" not in METHODS
    assert ours.history["loss"][0] == pytest.approx(2 * plain.history["loss"][0])
