"""Every known difference between this package, the paper and its published code has a test.

The table of differences is in docs/reference/paper-to-code.md; its last column is what this package
does.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "reference" / "paper-to-code.md"
HEADING = "## Where do paper, published implementation and this code differ?"
DENSE = "nn/test_dense_oracle.py::test_training_loss_and_gradients_are_those_of_the_dense_equations"
SETTINGS = "test_defaults.py::test_canet_starts_from_the_published_settings"

TESTED_BY = {
    "Gumbel-Softmax": [
        "nn/test_environment.py::test_sample_is_the_gumbel_softmax_of_the_log_posterior"
    ],
    "regulariser's mean": [
        "nn/test_dense_oracle.py::"
        "test_receptive_field_of_some_nodes_gives_their_rows_of_the_dense_equations"
    ],
    "order in a layer": [
        "nn/test_dense_oracle.py::"
        "test_dropout_comes_first_in_every_layer_and_before_both_linear_maps"
    ],
    "GCN branch": [
        DENSE,
        "nn/test_blocks.py::test_symmetric_counts_incoming_edges_and_adds_no_self_loops",
    ],
    "plain sum": [
        DENSE,
        SETTINGS,
        "nn/test_blocks.py::test_along_an_edge_its_target_reads_its_source",
    ],
    "GAT branch": [
        DENSE,
        "nn/test_published_attention.py::test_small_graph_is_attended_as_published",
    ],
    "slope of LeakyReLU": [
        DENSE,
        "nn/backbones/test_plain_gcn_and_gat.py::test_backbone_and_its_gradients_equal_those_of_pyg",
    ],
    "softmax of attention": [
        "nn/test_operations.py::test_attention_weights_survive_scores_that_overflow_an_exponential",
        "nn/test_published_attention.py::"
        "test_published_sum_loses_nodes_whose_scores_are_far_below_the_largest_of_the_graph",
    ],
    "estimator": [
        "nn/test_environment.py::test_node_posterior_reads_the_node_alone_with_a_bias",
        "nn/test_environment.py::"
        "test_graph_posterior_reads_neighbours_with_the_first_half_and_itself_with_the_second",
    ],
    "prediction": [
        "nn/test_environment.py::"
        "test_predicting_uses_the_posterior_itself_without_noise_or_temperature"
    ],
    "two classes": [
        SETTINGS,
        "nn/test_dense_oracle.py::test_binary_loss_follows_the_dense_equations_on_each_column",
    ],
    "branch weights at the start": [
        "nn/backbones/test_gcn.py::test_initial_weights_stay_within_their_bounds"
    ],
    "attention vectors at the start": [
        "nn/backbones/test_gat.py::test_initial_weights_stay_within_their_bounds"
    ],
    "spurious features": [
        "data/benchmarks/test_spurious.py::"
        "test_in_the_paper_protocol_test_nodes_have_copies_in_the_training_set",
        "data/benchmarks/test_spurious.py::"
        "test_in_the_disjoint_protocol_all_copies_of_a_node_are_in_one_split",
    ],
    "Elliptic's OOD sets": [
        "data/benchmarks/test_elliptic.py::"
        "test_later_steps_are_eight_groups_of_four_and_the_left_out_ones"
    ],
    "Arxiv's split": [
        "data/benchmarks/test_arxiv.py::test_papers_before_2014_are_in_distribution",
        "methods/test_conformance.py::test_test_nodes_and_labels_change_no_bit_of_training",
    ],
    "Arxiv's environments": [
        "data/benchmarks/test_arxiv.py::test_papers_before_2014_are_in_distribution"
    ],
    "Twitch's features": [
        "data/benchmarks/test_twitch.py::test_rows_of_features_sum_to_one_unless_they_are_multi_hot"
    ],
    "Twitch's labels": ["data/benchmarks/test_twitch.py::test_labels_are_assigned_by_user_id"],
    "five runs": [
        "report/test_comparison.py::"
        "test_several_draws_have_their_spread_over_draws_with_common_seeds"
    ],
}


def test_every_row_of_the_table_has_its_tests() -> None:
    section = TABLE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    points = re.findall(r"^\| ([^|]*?) \|", section, flags=re.M)[1:]
    assert sorted(points) == sorted(TESTED_BY)
    for test in chain.from_iterable(TESTED_BY.values()):
        file, name = test.split("::")
        assert f"\ndef {name}(" in (TESTS / file).read_text(encoding="utf-8"), test
