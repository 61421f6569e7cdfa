from pathlib import Path

from canet.data import CENTRED_PER_GRAPH, WITHOUT_SPURIOUS
from canet.paper.scope import Scope
from canet.store import RunConfig
from experiments.method_variant import ERM_WITHOUT_SPURIOUS
from experiments.protocols import Protocols
from tests.support.made_up import write_runs


def below_control(config: RunConfig) -> float:
    return 0.9 if config.features == WITHOUT_SPURIOUS else 0.7 + config.data_seed / 100


def test_both_protocols_both_backbones_and_two_controls_on_five_draws(fresh_cache: Path) -> None:
    configs = Protocols(Scope(tasks=("cora",))).configs()
    assert len(configs) == 2 * 2 * 4 * 5
    assert {config.protocol for config in configs} == {"paper", "disjoint"}
    for control in (WITHOUT_SPURIOUS, CENTRED_PER_GRAPH):
        assert {c.method for c in configs if c.features == control} == {"erm"}


def test_the_table_has_selection_rules_and_differences_from_the_control_paired_by_draw(
    fresh_cache: Path, tmp_path: Path
) -> None:
    quick = Protocols(Scope(quick=True))
    (table,) = quick.tables(write_runs(quick, tmp_path, below_control))
    heads, rows = table.texts()
    assert heads[4:7] == [
        "OOD, best validation",
        "OOD, last epoch",
        "OOD, oracle (looks at test data)",
    ]
    # the made-up curves have 0.1, 0.3, 0.2 on every OOD set and their best validation first
    assert rows[0][4:7] == ["10.00 ± 0.00", "20.00 ± 0.00", "30.00 ± 0.00"]
    by_name = {(row[1], row[3]): row for row in rows}
    assert by_name["disjoint", "CaNet"][-1] == "-19.50 ± 0.71"
    assert by_name["disjoint", ERM_WITHOUT_SPURIOUS.label][-1] == ""
