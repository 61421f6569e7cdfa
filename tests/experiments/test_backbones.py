from pathlib import Path

from canet.paper.scope import Scope
from canet.store import RunConfig
from experiments.backbones import COMPARED, Backbones
from tests.support.made_up import write_runs


def by_backbone(config: RunConfig) -> float:
    """CaNet has one point more than ERM, each backbone ten more than the one before."""
    lead = 0.01 if config.method == "canet" else 0.0
    return 0.4 + 0.1 * COMPARED.index(config.backbone) + lead + config.data_seed / 100


def test_every_backbone_has_the_same_settings_on_five_draws(fresh_cache: Path) -> None:
    configs = Backbones(Scope()).configs()
    assert len(configs) == (3 * 2 + 1) * len(COMPARED) * 2 * 5
    for task in ("cora", "citeseer", "pubmed", "twitch"):
        for method in ("erm", "canet"):
            chosen = [c for c in configs if (c.task, c.method) == (task, method)]
            assert {config.backbone for config in chosen} == set(COMPARED)
            assert all(config.settings == chosen[0].settings for config in chosen)
            binary = chosen[0].settings["loss"] == "binary_cross_entropy"
            assert binary == (task == "twitch")


def test_tables_have_scores_and_differences_paired_by_draw(
    fresh_cache: Path, tmp_path: Path
) -> None:
    quick = Backbones(Scope(quick=True))
    scores, attention, methods = quick.tables(write_runs(quick, tmp_path, by_backbone))
    rows = {row[1]: row[2:] for row in scores.texts()[1]}
    assert rows["GCN"][:2] == ["40.50 ± 0.71", "41.50 ± 0.71"]
    assert rows["Transformer"][:2] == ["80.50 ± 0.71", "81.50 ± 0.71"]
    assert [row[1] for row in attention.texts()[1]] == ["ERM", "CaNet"]
    for row in attention.texts()[1]:
        assert row[2:] == [f"{10 * steps}.00 ± 0.00" for steps in (4, 3, 2, 1)]
    (row,) = methods.texts()[1]
    assert row[1:] == ["CaNet", *["1.00 ± 0.00"] * len(COMPARED)]
