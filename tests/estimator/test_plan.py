"""The decision of `fit`: whole graph, batches with sampled neighbours, or reading from the disk."""

from pathlib import Path
from typing import Any

import pytest
import torch

from canet import NodeClassifier
from canet.data.graph import Graph
from canet.defaults import changed
from canet.estimator import plan as planning
from canet.estimator.plan import Plan, plan_training
from canet.util.sparse import Csr
from tests.support.stores import never_load, write_store
from tests.support.user_graphs import small_user_graph

N, D, E = 1_000, 64, 6_000
SIZE = 4 * N * D + 16 * E  # hidden states are as wide as the features


def graph(in_memory: bool = True) -> Graph:
    if in_memory:
        return Graph(torch.empty(N, D), torch.empty(2, E, dtype=torch.long))
    rowptr = torch.arange(N + 1) * (E // N)
    return Graph(torch.empty(N, D), csr=Csr(rowptr, torch.empty(E, dtype=torch.int32)))


def decided(
    free: float | None, in_memory: bool = True, method: str = "auto", **how: Any
) -> tuple[bool, bool]:
    """Whether training is in batches, and from the disk."""
    found = plan(free, in_memory, method, **how)
    return found.settings.in_batches, not found.loads


def plan(free: float | None, in_memory: bool = True, method: str = "auto", **how: Any) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        memory = None if free is None else int(free * SIZE)
        patch.setattr(planning, "free_memory", lambda: memory)
        named = how.pop("settings", {})
        settings = changed(method, named)
        return plan_training(graph(in_memory), method, settings, named, "cpu", **how)


def test_memory_decides() -> None:
    assert decided(15.1) == decided(None) == (False, False)
    assert decided(14.9) == decided(1) == (True, False)
    assert decided(15.1, in_memory=False) == (False, False)
    assert decided(14.9, in_memory=False) == decided(12.1, in_memory=False) == (True, False)
    assert decided(11.9, in_memory=False) == (True, True)
    assert decided(31, processes=2) == (False, False)
    assert decided(29, processes=2) == (True, False)


def test_named_settings_win() -> None:
    assert decided(1, settings={"batch_size": 0}) == (False, False)
    assert decided(1, in_memory=False, settings={"fanout": "all"}) == (False, False)
    assert decided(99, in_memory=False, settings={"batch_size": 7}) == (True, True)
    named = plan(1, settings={"epochs": 150})
    assert named.settings_for(10**9).epochs == 150
    found = plan(1, settings={"num_layers": 4}).settings
    assert found.fanout == "15,10,5,5"


def test_a_method_that_needs_all_nodes_gets_the_whole_graph() -> None:
    assert decided(1, method="mixup") == (False, False)
    assert decided(1, in_memory=False, method="mixup") == (False, False)
    against = {"direction": "against"}
    assert decided(1, in_memory=False, method="erm", settings=against) == (True, False)
    assert decided(1, in_memory=False, method="linear") == (False, True)
    assert decided(1, method="trees") == (False, False)
    intervening = {"interventions": "inferred"}
    assert decided(1, method="canet", settings=intervening) == (False, False)


def test_epochs_of_many_steps_are_fewer() -> None:
    found = plan(1)
    epochs = [found.settings_for(n).epochs for n in (100, 102_400, 10**8)]
    assert epochs == [200, 20, 3]
    assert plan(99).settings_for(10**8).epochs == 200


def test_the_decision_is_one_line() -> None:
    assert plan(99).reason == ""
    assert plan(10).reason == (
        "training on the whole graph needs about 5.3 MB, and 3.5 MB is free: "
        "training in batches of 1,024"
    )
    assert plan(99, in_memory=False).reason.endswith(": reading it into memory")
    line = plan(1, in_memory=False).reason
    assert line.endswith(": reading it from the disk, training in batches of 1,024")


@pytest.mark.usefixtures("few_models")
def test_fit_follows_the_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planning, "free_memory", lambda: 1_000)
    model = NodeClassifier(device="cpu", hidden=8, epochs=2, verbose=1).fit(small_user_graph())
    assert model.settings_["batch_size"] == planning.BATCH_SIZE
    assert "training in batches of 1,024" in capsys.readouterr().err
    store = write_store(tmp_path / "store")
    never_load(monkeypatch)
    model.set_params(verbose=0).fit(store)
    assert model.predict(store).shape == (120,)
    assert not capsys.readouterr().err
