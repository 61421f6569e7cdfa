import shutil
from pathlib import Path

import pytest

from canet.errors import CanetError, InputWarning
from canet.report.comparison import find_results
from canet.store.summary import OOD_MEAN
from tests.support.finished import make_config, write_run


def scores(ood: float) -> dict[str, float]:
    return {"test_id": 0.8, "ood/near": ood, "ood/far": ood - 0.1}


def test_runs_that_differ_only_in_their_seed_are_sorted_by_seed(tmp_path: Path) -> None:
    for seed, ood in ((1, 0.6), (0, 0.5), (10, 0.7)):
        write_run(tmp_path, make_config(seed=seed), scores(ood))
    runs, _ = find_results(tmp_path)
    assert [run.config for run in runs] == [make_config(seed=seed) for seed in (0, 1, 10)]
    assert [run.folder.path.name for run in runs] == ["seed-0", "seed-1", "seed-10"]
    assert [run.score("ood/near") for run in runs] == [0.5, 0.6, 0.7]
    assert [run.score(OOD_MEAN) for run in runs] == pytest.approx([0.45, 0.55, 0.65])


def test_a_run_that_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path, make_config(seed=0), scores(0.5))
    changed = write_run(tmp_path, make_config(seed=1), scores(0.6))
    (changed.path / "result.json").write_text("{}")
    with pytest.warns(InputWarning, match="left out a run") as caught:
        (run,), (line,) = find_results(tmp_path)
    assert run.config.seed == 0
    assert str(changed.path.relative_to(tmp_path)) in line
    assert str(tmp_path) not in line
    assert len(caught) == 1


def test_an_error_is_raised_if_no_run_can_be_read(tmp_path: Path) -> None:
    for seed in (0, 1):
        place = write_run(tmp_path, make_config(seed=seed), scores(0.5))
        (place.path / "config.json").write_text("null")
    with pytest.raises(CanetError, match=r"no run at .* can be read: .*\(and 1 more\)"):
        find_results(tmp_path)


def test_an_unreadable_copy_of_a_run_is_replaced_by_another_copy(tmp_path: Path) -> None:
    place = write_run(tmp_path / "a", make_config(), scores(0.5))
    shutil.copytree(place.path, tmp_path / "b" / "copy")
    (place.path / "result.json").write_text("null")
    with pytest.warns(InputWarning, match="left out a run"):
        (run,), _ = find_results(tmp_path)
    assert run.folder.path == tmp_path / "b" / "copy"
