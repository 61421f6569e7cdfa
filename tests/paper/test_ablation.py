from pathlib import Path

import pytest

from canet.paper.ablation import VARIANTS, Ablation
from canet.paper.scope import Scope
from canet.store import RunConfig
from tests.support.made_up import write_runs


@pytest.fixture
def quick(fresh_cache: Path) -> Ablation:
    return Ablation(Scope(quick=True))


def worse_without_regulariser(config: RunConfig) -> float:
    lost = 0.07 if config.settings["prior"] == "none" else 0.0
    return 0.9 + config.data_seed / 100 - lost


def test_variants_are_settings_of_the_one_model(fresh_cache: Path) -> None:
    configs = Ablation(Scope(tasks=("cora",))).configs()
    assert {config.method for config in configs} == {"canet"}
    assert len({config.name for config in configs if config.data_seed == 0}) == 2 * len(VARIANTS)
    assert all(config.ood_curves for config in configs)


def test_differences_from_the_full_model_are_paired_by_draw(
    quick: Ablation, tmp_path: Path
) -> None:
    (table,) = quick.tables(write_runs(quick, tmp_path, worse_without_regulariser))
    rows = {(row[0], row[1]): row for row in table.texts()[1]}
    assert rows["GCN", "full"][2] == "90.50 ± 0.71"
    assert rows["GCN", "full"][-1] == ""
    assert rows["GAT", "w/o Reg Loss"][-1] == "-7.00 ± 0.00"
    assert rows["GAT", "w/o Para Env"][-1] == "0.00 ± 0.00"
