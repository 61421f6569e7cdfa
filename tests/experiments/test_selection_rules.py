import pytest

from canet.errors import CanetError
from experiments.selection_rules import SELECTION_RULES, BestValidation, LastEpoch, Oracle

NAN = float("nan")
HISTORY = {
    "loss": [3.0, 2.0, 1.0, 0.5, 0.1],
    "valid": [50.0, 80.0, 70.0, 80.0, 60.0],
    "test_id": [90.0, 0.0, 0.0, 0.0, 0.0],
    "ood/near": [10.0, 20.0, 90.0, 20.0, 90.0],
    "ood/far": [10.0, 70.0, 20.0, 10.0, 20.0],
    "left_out/never": [0.0, 0.0, 0.0, 99.0, 0.0],
}


def test_best_validation_is_the_first_of_equals_and_uses_validation_scores_only() -> None:
    assert BestValidation.epoch(HISTORY) == 1
    assert BestValidation.epoch({"valid": HISTORY["valid"]}) == 1
    assert BestValidation.epoch({"valid": [NAN, 40.0, NAN, 41.0]}) == 3


def test_last_epoch_is_the_last() -> None:
    assert LastEpoch.epoch(HISTORY) == 4


def test_oracle_takes_the_best_mean_ood_score_of_complete_epochs() -> None:
    assert Oracle.epoch(HISTORY) == 2
    assert Oracle.epoch({"valid": [1, 1, 1], "ood/a": [NAN, 5, 9], "ood/b": [50, 5, 9]}) == 2


@pytest.mark.parametrize(
    ("ood", "words"),
    [({}, "ood_curves"), ({"ood/a": [1.0, 2.0], "ood/b": [NAN, NAN]}, "all classes")],
)
def test_oracle_rejects_a_history_without_ood_scores(
    ood: dict[str, list[float]], words: str
) -> None:
    with pytest.raises(CanetError, match=words):
        Oracle.epoch({"valid": [50.0, 60.0], **ood})


def test_only_the_oracle_uses_test_data_and_its_name_states_it() -> None:
    assert Oracle.name == "oracle (looks at test data)"
    names = [rule.name for rule in SELECTION_RULES]
    assert names == ["best validation", "last epoch", "oracle (looks at test data)"]
    worse_on_test = {
        name: [100 - score for score in curve] if name not in ("loss", "valid") else curve
        for name, curve in HISTORY.items()
    }
    for rule in (BestValidation, LastEpoch):
        assert rule.epoch(worse_on_test) == rule.epoch(HISTORY)
    assert Oracle.epoch(worse_on_test) != Oracle.epoch(HISTORY)
