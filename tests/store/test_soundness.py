from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canet.errors import CanetError
from canet.report.results import read_run
from canet.store import RunFolder
from canet.store.soundness import check_metrics, check_result
from tests.finished import make_config, write_run

ENVIRONMENTS = {
    "posterior": {"train": [[0.2, 0.8], [0.5, 0.5]], "ood/near": [[1.0, 0.0], [0.9, 0.1]]},
    "effective": [1.6, 2.0],
    "alignment": [0.5, math.nan],
}


@pytest.fixture
def place(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path, make_config(), {"test_id": 80.0, "ood/near": 50.0})


def change(place: RunFolder, name: str, changes: dict[str, Any]) -> None:
    path = place.path / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(act: Callable[[], Any], cause: str) -> None:
    with pytest.raises(CanetError) as caught:
        act()
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sound_run_is_read(place: RunFolder) -> None:
    change(place, "result.json", {"inferred_environments": ENVIRONMENTS})
    assert read_run(place).score("ood") == 50.0


@pytest.mark.parametrize("alignment", [{}, {"alignment": None}])
def test_environments_need_no_true_ones_to_match(
    place: RunFolder, alignment: dict[str, Any]
) -> None:
    told = {name: ENVIRONMENTS[name] for name in ("posterior", "effective")} | alignment
    change(place, "result.json", {"inferred_environments": told})
    read_run(place)


def test_a_score_may_be_no_number_where_a_set_has_one_class(place: RunFolder) -> None:
    change(place, "result.json", {"scores": {"ood/near": math.nan}})
    change(place, "metrics.json", {"ood/near": [math.nan, 20.0], "loss": [math.inf, 1]})
    assert math.isnan(read_run(place).score("ood"))


@pytest.mark.parametrize("content", ["[]", "null", "3", '"text"', "{}", "", "{", "[" * 10**5])
@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.json"])
def test_a_file_of_another_shape_is_refused(place: RunFolder, name: str, content: str) -> None:
    (place.path / name).write_text(content)
    if (name, content) == ("metrics.json", "{}"):
        read_run(place)  # no curves are drawn
    else:
        refused(lambda: read_run(place), str(place.path))


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.json"])
def test_a_folder_in_place_of_a_file_is_refused(place: RunFolder, name: str) -> None:
    (place.path / name).unlink()
    (place.path / name).mkdir()
    refused(lambda: read_run(place), str(place.path))


@pytest.mark.parametrize(
    "score", ["50", None, 1e308, -1e308, math.inf, -math.inf, True, [], {}, 10**400]
)
def test_a_score_that_is_no_percentage_is_refused(place: RunFolder, score: Any) -> None:
    result = place.read_result() | {"scores": {"ood/near": score}}
    refused(lambda: check_result(result, place.path), "its score 'ood/near' is")
    refused(lambda: check_metrics({"valid": [50.0, score]}, place.path), "its 'valid' is no curve")
    change(place, "result.json", {"scores": {"ood/near": score}})
    refused(lambda: read_run(place), str(place.path))


@pytest.mark.parametrize("score", [-0.1, 100.1, 104.0])
def test_a_score_beyond_a_percentage_is_refused(place: RunFolder, score: float) -> None:
    result = place.read_result() | {"scores": {"ood/near": score}}
    cause = f"its score 'ood/near' is {score}, and no percentage"
    refused(lambda: check_result(result, place.path), cause)


def test_a_run_without_a_set_under_shift_is_refused(place: RunFolder) -> None:
    change(place, "result.json", {"scores": {"train": 90.0}})
    refused(lambda: read_run(place), "has no score under shift")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("scores", value) for value in ([], None, "50", 50)),
        *(("epochs", value) for value in (None, "2", -1, 2.5, 1e308, math.nan, True)),
        *(("selected_epoch", value) for value in ({}, -1)),
        *(("seconds_per_epoch", value) for value in (None, "1", -1, math.inf, math.nan, 1e308)),
        *(("peak_memory_mb", value) for value in ([], 1e308)),
        *(("selection", None), ("device", 3), ("versions", []), ("versions", {"canet": 1})),
        *(("environments_seen", "all"), ("environments_seen", [1])),
    ],
)
def test_what_no_result_can_hold_is_refused(place: RunFolder, name: str, value: Any) -> None:
    result = place.read_result() | {name: value}
    refused(lambda: check_result(result, place.path), f"its {name} is")


@pytest.mark.parametrize("name", ["scores", "selection", "device", "versions", "epochs"])
def test_a_result_without_what_is_shown_is_refused(place: RunFolder, name: str) -> None:
    result = {key: value for key, value in place.read_result().items() if key != name}
    refused(lambda: check_result(result, place.path), f"lacks {name}")


@pytest.mark.parametrize("last", [None, [], 3, {"ood/near": "50"}, {"ood/near": 1e308}])
def test_scores_of_the_last_epoch_are_percentages(place: RunFolder, last: Any) -> None:
    change(place, "result.json", {"last_scores": last})
    refused(lambda: read_run(place), "result.json' is damaged (its ")


@pytest.mark.parametrize(
    "found",
    [
        *(None, [], 3, {"moved_columns": [1]}, {"moved_columns": [1], "share": [0.5, 0.4]}),
        *({"moved_columns": ["x"], "share": [0.5]}, {"moved_columns": [1], "share": ["x"]}),
        {"moved_columns": 3, "share": 3},
    ],
)
def test_findings_must_belong_together(place: RunFolder, found: Any) -> None:
    change(place, "result.json", {"findings": found})
    refused(lambda: read_run(place), "its findings do not belong together")


@pytest.mark.parametrize(
    "found",
    [
        *([], 3, {}, {"effective": [1.0]}, ENVIRONMENTS | {"effective": [1.0]}),
        *(ENVIRONMENTS | {"effective": ["1", "2"]}, ENVIRONMENTS | {"alignment": [0.5]}),
        *(ENVIRONMENTS | {"posterior": {}}, ENVIRONMENTS | {"posterior": {"train": [[0.2]]}}),
        ENVIRONMENTS | {"posterior": {"train": [[0.2, 0.8], [1.0]]}},
        ENVIRONMENTS | {"posterior": {"train": [[0.2, 0.8], ["0.5", 0.5]]}},
        ENVIRONMENTS | {"posterior": {"train": [[], []]}},
        ENVIRONMENTS | {"posterior": {"train": 3}},
    ],
)
def test_inferred_environments_must_belong_together(place: RunFolder, found: Any) -> None:
    result = place.read_result() | {"inferred_environments": found}
    refused(lambda: check_result(result, place.path), "inferred_environments")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("task", 3), ("method", None), ("backbone", []), ("settings", []), ("settings", None)),
        *(("seed", "0"), ("seed", True), ("data_seed", 1.5), ("data_seed", -5)),
    ],
)
def test_a_config_of_other_types_is_refused(place: RunFolder, name: str, value: Any) -> None:
    change(place, "config.json", {name: value})
    refused(lambda: read_run(place), str(place.path))


def test_curves_under_shift_are_equally_long(place: RunFolder) -> None:
    metrics = {"ood/near": [1.0, 2.0], "ood/far": [1.0]}
    refused(lambda: check_metrics(metrics, place.path), "not equally long")
