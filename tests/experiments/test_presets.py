import pytest

from canet.data.catalog import CATALOG
from canet.errors import CanetError
from canet.experiments.presets import preset
from canet.methods import BACKBONES, METHODS, Settings
from canet.methods.canet import CaNetSettings

# The authors' settings of CaNet. Attention has no propagation; for it the column holds the default.
PUBLISHED = """
task      backbone  decay  tau  dropout  estimator  propagation  direction  layers  hidden  loss
cora      gcn       5e-5   1    0.2      graph      symmetric    along      2       64      multi
citeseer  gcn       5e-5   1    0.1      graph      symmetric    along      2       64      multi
pubmed    gcn       5e-5   2    0.2      graph      symmetric    along      2       64      multi
arxiv     gcn       5e-4   1    0.2      node       sum          against    2       64      multi
twitch    gcn       5e-5   3    0        graph      symmetric    along      2       64      binary
elliptic  gcn       1e-3   1    0.2      node       sum          against    3       32      binary
cora      gat       0      3    0.2      graph      symmetric    along      2       64      multi
citeseer  gat       0      3    0.2      graph      symmetric    along      2       64      multi
pubmed    gat       5e-5   1    0.2      graph      symmetric    along      2       64      multi
arxiv     gat       5e-5   2    0.2      graph      symmetric    against    2       64      multi
twitch    gat       5e-5   2    0        graph      symmetric    along      2       64      binary
elliptic  gat       5e-4   2    0.1      graph      symmetric    against    2       64      binary
"""
ROWS = [line.split() for line in PUBLISHED.strip().splitlines()[1:]]
LOSS = {"multi": "cross_entropy", "binary": "binary_cross_entropy"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_canet_starts_from_the_published_settings(row: list[str]) -> None:
    task, backbone, decay, tau, dropout, estimator, propagation, direction, *rest = row
    layers, hidden, loss = rest
    assert preset(task, "canet", backbone) == CaNetSettings(
        weight_decay=float(decay),
        tau=float(tau),
        dropout=float(dropout),
        estimator=estimator,  # type: ignore[arg-type]
        propagation=propagation,  # type: ignore[arg-type]
        direction=direction,  # type: ignore[arg-type]
        num_layers=int(layers),
        hidden=int(hidden),
        loss=LOSS[loss],  # type: ignore[arg-type]
        num_environments=3,
        learning_rate=0.01,
        reg_weight=1.0,
        epochs=500,
        prior="uniform",
        patience=0,
        estimator_learning_rate=None,
        shared_environment=False,
        learned_environment=True,
    )


def test_table_covers_every_task_of_the_paper_and_every_backbone() -> None:
    of_the_paper = [name for name, entry in CATALOG.items() if entry.published]
    pairs = {(task, backbone) for task in of_the_paper for backbone in BACKBONES}
    assert {(row[0], row[1]) for row in ROWS} == pairs


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_task_without_published_settings_gets_the_defaults(backbone: str) -> None:
    assert preset("synthetic", "canet", backbone) == CaNetSettings()
    assert preset("mine", "canet", backbone) == CaNetSettings()


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("task", CATALOG)
def test_methods_on_one_task_share_its_loss(task: str, backbone: str) -> None:
    assert len({preset(task, method, backbone).loss for method in METHODS}) == 1


def test_erm_keeps_its_defaults_but_for_the_loss_of_two_class_tasks() -> None:
    assert preset("cora", "erm", "gcn") == Settings()
    assert preset("twitch", "erm", "gat") == Settings(loss="binary_cross_entropy")


def test_unknown_method_is_refused() -> None:
    with pytest.raises(CanetError, match="unknown method 'cannet': did you mean 'canet'"):
        preset("cora", "cannet", "gcn")
