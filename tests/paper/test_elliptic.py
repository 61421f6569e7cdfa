from pathlib import Path

import pytest
from matplotlib.figure import Figure

from canet.methods import METHODS
from canet.paper import elliptic as elliptic_module
from canet.paper.elliptic import Elliptic
from canet.paper.finished_runs import FinishedRuns
from canet.paper.scope import Scope
from canet.report.figures import BACKGROUND_GREY
from canet.store import RunConfig
from tests.support.made_up import write_runs
from tests.support.searches import SearchCaNet


@pytest.fixture
def elliptic(small_root: Path) -> Elliptic:
    return Elliptic(Scope(methods=("erm", "canet"), data_root=small_root))


def score_of(config: RunConfig) -> float:
    return 0.6 + config.seed / 100 + (0.1 if config.method == "canet" else 0)


def test_all_methods_run_five_times_on_one_split(
    small_root: Path, search_canet: SearchCaNet
) -> None:
    configs = Elliptic(Scope(data_root=small_root)).configs()
    assert len(configs) == 2 * 9 * 5
    assert {config.data_seed for config in configs} == {0}


def test_left_out_steps_have_their_own_table(elliptic: Elliptic, tmp_path: Path) -> None:
    main, left_out = elliptic.tables(write_runs(elliptic, tmp_path, score_of))
    heads, rows = main.texts()
    assert heads[2:] == [
        *("OOD mean", "11-14", "15-18", "19-22", "23-26", "27-30", "31-34", "35-38", "39-42", "ID")
    ]
    assert rows[1][:3] == ["GCN", "CaNet", "72.00 ± 1.58"]
    assert left_out.texts()[0][2:] == ["6-10", "43-49"]
    assert left_out.texts()[1][0][2] == "50.00 ± 0.00"


def test_a_panel_shows_one_method_and_canet_with_the_others_in_grey(
    small_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(elliptic_module, "save_figure", lambda figure, *_: drawn.append(figure))
    methods = ("erm", "irm", "coral", "dann", "mixup", "canet")
    experiment = Elliptic(Scope(methods=methods, data_root=small_root))
    experiment.draw(FinishedRuns(tmp_path), tmp_path)
    panels = [axes for axes in drawn[0].axes if axes.axison]
    assert len(panels) == 2 * 5
    for axes, method in zip(panels, 2 * methods[:-1], strict=True):
        handles, labels = axes.get_legend_handles_labels()
        assert {handle.get_color() for handle in handles[:4]} == {BACKGROUND_GREY}
        assert labels == [*["other methods"] * 4, "CaNet", METHODS[method].label]


def test_a_replacement_task_has_no_left_out_steps(fresh_cache: Path, tmp_path: Path) -> None:
    quick = Elliptic(Scope(quick=True))
    finished = write_runs(quick, tmp_path / "runs")
    (table,) = quick.tables(finished)
    quick.draw(finished, tmp_path / "figures")
    assert table.columns[3:] == ["domain 4", "domain 5", "domain 6", "ID"]
    assert "in place of elliptic" in "".join(table.notes)
