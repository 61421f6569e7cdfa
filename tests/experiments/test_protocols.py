from __future__ import annotations

from pathlib import Path

import pytest

from canet.data import CENTRED_PER_GRAPH, WITHOUT_SPURIOUS
from canet.paper.scope import Scope
from canet.store import RunConfig
from experiments.contender import ERM_BLIND
from experiments.protocols import Protocols
from tests.paper.made_up import write_runs


@pytest.fixture
def quick(fresh_cache: Path) -> Protocols:
    return Protocols(Scope(quick=True))


def below_blind(config: RunConfig) -> float:
    return 90.0 if config.features == WITHOUT_SPURIOUS else 70.0 + config.data_seed


def test_both_protocols_both_backbones_and_two_controls_on_five_draws(fresh_cache: Path) -> None:
    configs = Protocols(Scope(tasks=("cora",))).configs()
    assert len(configs) == 2 * 2 * 4 * 5
    assert {config.protocol for config in configs} == {"paper", "disjoint"}
    for control in (WITHOUT_SPURIOUS, CENTRED_PER_GRAPH):
        assert {c.method for c in configs if c.features == control} == {"erm"}


def test_selection_rules_stand_side_by_side(quick: Protocols, tmp_path: Path) -> None:
    (table,) = quick.tables(write_runs(quick, tmp_path, below_blind))
    heads, rows = table.texts()
    assert heads[4:7] == [
        "OOD, best validation",
        "OOD, last epoch",
        "OOD, oracle (looks at test data)",
    ]
    # the made-up curves have 10, 30, 20 on every OOD set and their best validation first
    assert rows[0][4:7] == ["10.00 ± 0.00", "20.00 ± 0.00", "30.00 ± 0.00"]


def test_the_distance_to_the_blind_model_is_taken_draw_by_draw(
    quick: Protocols, tmp_path: Path
) -> None:
    (table,) = quick.tables(write_runs(quick, tmp_path, below_blind))
    rows = {(row[1], row[3]): row for row in table.texts()[1]}
    assert rows["disjoint", "CaNet"][-1] == "-19.50 ± 0.71"
    assert rows["disjoint", ERM_BLIND.label][-1] == ""
