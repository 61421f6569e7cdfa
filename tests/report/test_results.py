from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from canet.errors import CanetError, InputWarning
from canet.report import ExtraSet
from canet.report.results import find_results, read_results
from canet.store.summary import OOD_MEAN
from tests.finished import make_config, write_run


def scores(ood: float) -> dict[str, float]:
    return {"test_id": 80.0, "ood/near": ood, "ood/far": ood - 10}


def test_runs_that_differ_in_their_seed_alone_are_one_result(tmp_path: Path) -> None:
    for seed, ood in ((1, 60.0), (0, 50.0), (10, 70.0)):
        write_run(tmp_path, make_config(seed=seed), scores(ood))
    (result,) = read_results(tmp_path)
    assert result.config == make_config(seed=0)
    assert [run.config.seed for run in result.runs] == [0, 1, 10]
    assert [run.place.path.name for run in result.runs] == ["seed-0", "seed-1", "seed-10"]
    near = result.score("ood/near")
    assert near.values == [50.0, 60.0, 70.0]
    assert (near.mean, near.std) == (60.0, pytest.approx(10.0))
    assert result.score(OOD_MEAN).mean == 55.0


def test_whatever_else_differs_makes_another_result(tmp_path: Path) -> None:
    configs = [
        make_config(),
        make_config(data_seed=1),
        make_config(method="canet"),
        make_config(hidden=8),
        make_config(ood_curves=True),
    ]
    for config in configs:
        write_run(tmp_path, config, scores(50.0))
    found = [result.config for result in read_results(tmp_path)]
    assert sorted(map(repr, found)) == sorted(map(repr, configs))


def test_a_score_on_an_extra_set_stands_beside_the_others_and_is_no_result(tmp_path: Path) -> None:
    extra = ExtraSet("synthetic", "near, again", "again.json", "ood/near", "no result", "A note.")
    for seed in (0, 1):
        place = write_run(tmp_path, make_config(seed=seed), scores(50.0))
    place.add_json(extra.file, {extra.name: 20.0})
    (result,) = read_results(tmp_path, [extra])
    assert [run.has(extra.name) for run in result.runs] == [False, True]
    assert result.runs[1].score(extra.name) == 20.0
    assert math.isnan(result.score(extra.name).mean)
    assert result.score(OOD_MEAN).values == [45.0, 45.0]
    assert not read_results(tmp_path)[0].runs[1].has(extra.name)


def test_a_folder_without_finished_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CanetError, match="no finished run"):
        read_results(tmp_path)


def test_a_damaged_run_is_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path, make_config(seed=0), scores(50.0))
    damaged = write_run(tmp_path, make_config(seed=1), scores(60.0))
    (damaged.path / "result.json").write_text("{}")
    with pytest.warns(InputWarning, match="left out a run") as caught:
        found = find_results(tmp_path)
    assert [run.config.seed for run in found.results[0].runs] == [0]
    (line,) = found.left_out
    assert str(damaged.path.relative_to(tmp_path)) in line
    assert str(tmp_path) not in line
    assert len(caught) == 1


def test_where_every_run_is_damaged_there_is_nothing_to_report(tmp_path: Path) -> None:
    for seed in (0, 1):
        place = write_run(tmp_path, make_config(seed=seed), scores(50.0))
        (place.path / "config.json").write_text("null")
    with pytest.raises(CanetError, match=r"no run at .* can be used: .*\(and 1 more\)"):
        find_results(tmp_path)


def test_of_two_copies_of_a_run_the_sound_one_counts(tmp_path: Path) -> None:
    place = write_run(tmp_path / "a", make_config(), scores(50.0))
    shutil.copytree(place.path, tmp_path / "b" / "copy")
    (place.path / "result.json").write_text("null")
    with pytest.warns(InputWarning, match="left out a run"):
        (result,) = read_results(tmp_path)
    assert result.runs[0].place.path == tmp_path / "b" / "copy"
