import math

import pytest

from canet.report.score import Score, rank


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (Score([0.9, 0.92], 2), "91.00 ± 1.41"),
        (Score([0.9], 1), "90.00"),
        (Score([0.9, 0.92], 5), "91.00 ± 1.41 (2 of 5)"),
        (Score([], 5), "–"),
        (Score([math.nan, 0.9], 2), "–"),
        (Score([0.12345], 1, digits=3, is_share=False), "0.123"),
        (Score([0.12345], 1, digits=1), "12.3"),
    ],
)
def test_a_score_reads_as_mean_and_spread(score: Score, text: str) -> None:
    assert score.text == text


def test_the_best_two_scores_are_ranked_and_nan_is_not() -> None:
    scores = [Score([value]) for value in (0.6, math.nan, 0.8, 0.7)]
    assert [score.rank for score in rank(scores)] == [0, 0, 1, 2]
    assert [score.rank for score in rank([Score([0.60001]), Score([0.60002])])] == [1, 1]
    assert rank([Score([0.6])]) == [Score([0.6])]
