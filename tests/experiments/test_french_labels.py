import csv
from pathlib import Path

import torch

from canet.data import load_task
from canet.paper.published import SHIFTED_FR
from canet.paper.published_tables import Table2
from canet.paper.scope import Repeat, Scope, TaskSpec
from canet.runs.evaluate import load_task_of, open_learner
from canet.store import RunFolder
from experiments.french_labels import FILE, shift_labels, shifted_score, table
from tests.support.made_up import cell, write_runs


def test_labels_behind_a_repeated_row_belong_to_another_user() -> None:
    users = shift_labels(torch.arange(6549)).tolist()
    assert users[:1021] == [*range(1019), 1018, 1019]
    assert users[3755:3758] == [3754, 3754, 3755]
    assert users[-1] == 6546


def test_shifted_labels_are_the_rows_of_the_sorted_file(data_root: Path) -> None:
    with (data_root / "twitch/FR/musae_FR_target.csv").open(newline="", encoding="utf-8") as file:
        rows = sorted((int(row["new_id"]), row["mature"] == "True") for row in csv.DictReader(file))
    task = load_task("twitch", data_root)
    y = task.data.y[task.test_ood["FR"]]
    assert (len(rows), len(y)) == (6551, 6549)
    assert shift_labels(y).tolist() == [mature for _, mature in rows[: len(y)]]


def test_the_score_is_computed_once_and_added_to_the_run_folder(
    small_root: Path, tmp_path: Path
) -> None:
    spec = TaskSpec("twitch", "original", "twitch")
    changes = {"epochs": 1, "hidden": 4}
    config = Scope().job(spec, "erm", "gcn", Repeat(0, 0), changes=changes)
    folder = tmp_path / "run"
    open_learner(config, "cpu").run(load_task_of(config, small_root), {0: folder})
    place = RunFolder(folder)
    found = shifted_score(place, "cpu", small_root)
    assert 0 <= found <= 1
    before = (folder / FILE).stat().st_mtime_ns
    assert shifted_score(place, "cpu", small_root) == found
    assert (folder / FILE).stat().st_mtime_ns == before


def test_published_fr_is_next_to_shifted_labels_only(small_root: Path, tmp_path: Path) -> None:
    table2 = Table2(Scope(tasks=("twitch",), methods=("canet",), data_root=small_root))
    finished = write_runs(table2, tmp_path)
    for place in finished.folders(table2.configs()):
        place.add_json(FILE, {SHIFTED_FR: 0.52})
    main = table2.tables(finished)[0]
    assert list(main.columns[2:]) == ["twitch ES", "twitch FR", "twitch EN", "twitch ID"]
    assert cell(main, "GCN", "CaNet", "twitch FR").published is None
    shifted = cell(table(finished, data_root=small_root), "GCN", "CaNet", SHIFTED_FR)
    assert shifted.mean == 0.52
    assert shifted.published
    assert shifted.published.text == "53.59 ± 0.19"
