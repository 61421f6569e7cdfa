"""Every known difference between this package, the paper and its published code has a test.

The table of differences is in docs/reference/paper-to-code.md; its last column is what this package
does.
"""

import re
from itertools import chain
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "reference" / "paper-to-code.md"
HEADING = "## Where do paper, published implementation and this code differ?"
DENSE = "test_model_and_gradients_are_those_of_the_dense_equations"
PUBLISHED = "test_published_attention_differs_only_for_scores_far_below_the_largest_of_the_graph"
SETTINGS = "test_canet_starts_from_the_published_settings"

TESTED_BY = {
    "Gumbel-Softmax": [DENSE],
    "regulariser's mean": [DENSE],
    "order in a layer": ["test_dropout_comes_first_in_every_layer_and_before_both_linear_maps"],
    "GCN branch": [DENSE, "test_operator_is_its_definition"],
    "plain sum": [DENSE, SETTINGS, "test_operator_is_its_definition"],
    "GAT branch": [DENSE, PUBLISHED],
    "slope of LeakyReLU": [DENSE, "test_backbone_and_its_gradients_equal_those_of_pyg"],
    "softmax of attention": [
        "test_attention_weights_survive_scores_that_overflow_an_exponential",
        PUBLISHED,
    ],
    "estimator": [DENSE],
    "prediction": [DENSE],
    "two classes": [SETTINGS, "test_other_options_follow_the_dense_equations"],
    "branch weights at the start": ["test_initial_weights_are_within_their_bounds"],
    "attention vectors at the start": ["test_initial_weights_are_within_their_bounds"],
    "spurious features": [
        "test_in_the_paper_protocol_test_nodes_have_copies_in_the_training_set",
        "test_in_the_disjoint_protocol_all_copies_of_a_node_are_in_one_split",
    ],
    "Elliptic's OOD sets": ["test_later_steps_are_eight_groups_of_four_and_the_left_out_ones"],
    "Arxiv's split": [
        "test_papers_before_2014_are_in_distribution",
        "test_test_nodes_and_labels_change_no_bit_of_training",
    ],
    "Arxiv's environments": ["test_papers_before_2014_are_in_distribution"],
    "Twitch's features": ["test_rows_of_features_sum_to_one_unless_they_are_multi_hot"],
    "Twitch's labels": ["test_labels_are_assigned_by_user_id"],
    "five runs": ["test_several_draws_have_their_spread_over_draws_with_common_seeds"],
}
"""Difference → the tests that show what this package does."""


def test_every_row_of_the_table_has_its_tests() -> None:
    section = TABLE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    points = re.findall(r"^\| ([^|]*?) \|", section, flags=re.M)[1:]
    assert sorted(points) == sorted(TESTED_BY)
    tests = "".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    for name in chain.from_iterable(TESTED_BY.values()):
        assert f"\ndef {name}(" in tests, name
