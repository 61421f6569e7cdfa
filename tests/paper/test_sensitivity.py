from pathlib import Path

from canet.paper.published_tables import Table2
from canet.paper.scope import Scope
from canet.paper.sensitivity import Sensitivity
from tests.support.made_up import write_runs


def test_k_and_tau_vary_one_at_a_time(fresh_cache: Path) -> None:
    configs = Sensitivity(Scope(tasks=("twitch",))).configs()
    gcn = [c.settings for c in configs if (c.backbone, c.data_seed) == ("gcn", 0)]
    assert [s["num_environments"] for s in gcn] == [2, 3, 4, 5, 6, 7, *[3] * 6]
    assert [s["tau"] for s in gcn] == [*[3.0] * 6, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0]


def test_runs_with_published_settings_are_those_of_table_2(fresh_cache: Path) -> None:
    sensitivity = {(c.name, c.seed) for c in Sensitivity(Scope(tasks=("twitch",))).configs()}
    table2 = Table2(Scope(tasks=("twitch",), methods=("canet",))).configs()
    shared = [c for c in table2 if (c.name, c.seed) in sensitivity]
    assert len(shared) == 2 * 5


def test_a_row_for_each_value(fresh_cache: Path, tmp_path: Path) -> None:
    quick = Sensitivity(Scope(quick=True))
    finished = write_runs(quick, tmp_path / "runs", lambda config: config.settings["tau"] / 100)
    (table,) = quick.tables(finished)
    rows = {row[1]: row[2] for row in table.texts()[1]}
    assert list(rows) == ["K = 2", "K = 4", "K = 7", "τ = 0.5", "τ = 1", "τ = 10"]
    assert rows["τ = 10"] == "10.00 ± 0.00"
