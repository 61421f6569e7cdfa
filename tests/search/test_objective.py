from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from canet.data import load_task
from canet.data.benchmarks import synthetic
from canet.methods import BACKBONES, METHODS, get_method
from canet.models import Network, Trainer
from canet.runs import evaluate
from canet.scoring.metrics import METRICS
from canet.search.objective import Objective, without_test_labels
from canet.search.study import Plan
from canet.settings import describe_settings, override
from canet.store import RunConfig
from tests.support.finished import make_config
from tests.support.garbage import with_garbage_test_labels


@pytest.fixture(scope="module", autouse=True)
def few_users() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "NUM_USERS", 200)
        yield


def config(method: str = "erm", epochs: int = 3) -> RunConfig:
    return make_config(method=method, epochs=epochs, hidden=8)


def objective_of(base: RunConfig, seeds: int = 1) -> Objective:
    return Objective(Plan(base, "random", seeds), "cpu", None)


def test_only_training_and_validation_nodes_keep_their_labels() -> None:
    task = load_task("synthetic")
    hidden = without_test_labels(task)
    known = (hidden.data.y >= 0).nonzero().squeeze(1)
    assert known.tolist() == torch.cat([task.train, task.valid]).sort().values.tolist()
    assert hidden.data.y[known].equal(task.data.y[known])
    assert {*hidden.splits()} == {"train", "valid"}
    assert (hidden.num_classes, hidden.metric) == (task.num_classes, task.metric)


def test_removing_test_labels_does_not_change_the_original_task() -> None:
    task = load_task("synthetic")
    before = task.data.y.clone()
    without_test_labels(task)
    assert task.data.y.equal(before)
    assert task.test_ood


@pytest.mark.parametrize("method", METHODS)
def test_score_does_not_depend_on_test_labels(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[tuple[int, int, float]] = []
    changes = {"dropout": 0.1, "num_layers": 3}
    expected = objective_of(config(method))(changes, lambda *now: reports.append(now))
    expected_reports = list(reports)
    monkeypatch.setattr(
        evaluate, "load_task", lambda *given: with_garbage_test_labels(load_task(*given))
    )
    reports.clear()
    score = objective_of(config(method))(changes, lambda *now: reports.append(now))
    assert (score, reports) == (expected, expected_reports)


def test_no_test_node_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[torch.Tensor] = []
    metric = METRICS["accuracy"]

    def spy(predicted: torch.Tensor, y: torch.Tensor, num_classes: int) -> torch.Tensor:
        scored.append(y)
        return metric.function(predicted, y, num_classes)

    monkeypatch.setitem(METRICS, "accuracy", replace(metric, function=spy))
    objective_of(config("canet"))({})
    task = load_task("synthetic")
    assert scored
    for labels in scored:
        assert labels.min() >= 0  # test nodes have no label
        assert labels.numel() in (task.train.numel(), task.valid.numel())


def test_score_is_the_mean_of_the_runs_best_validation_scores() -> None:
    base = config(epochs=4)
    settings = override(get_method("erm").settings_type(), base.settings | {"dropout": 0.5})
    trainer = Trainer(load_task("synthetic"), "erm", "gcn", settings, "cpu")
    best = [max(trainer.run(seed).history["valid"]) for seed in range(2)]
    assert objective_of(base, 2)({"dropout": 0.5}) == pytest.approx(sum(best) / 2)


def test_only_the_first_run_reports_progress() -> None:
    reports: list[int] = []
    objective_of(config(), 2)({}, lambda done, total, score: reports.append(done))
    assert reports == [1, 2, 3]


def test_trials_with_the_same_number_of_layers_share_their_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = []
    run = Network.run
    monkeypatch.setattr(
        Network, "run", lambda self, *a, **k: used.append(self.fields(a[0])) or run(self, *a, **k)
    )
    objective = objective_of(config())
    for depth, hidden in ((2, 8), (3, 8), (2, 16)):
        objective({"num_layers": depth, "hidden": hidden})
    assert used[0] is used[2]
    assert used[0] is not used[1]


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("method", ["erm", "canet"])  # the others train the model of erm
def test_of_the_searched_settings_only_the_number_of_layers_changes_the_receptive_field(
    method: str, backbone: str
) -> None:
    method_type = get_method(method)
    ranges = {n: a["search"] for n, a in describe_settings(method_type.settings_type).items()}
    read = set()
    for name, values in ranges.items():
        for value in values if name != "num_layers" else ():
            settings = override(method_type.settings_type(), {name: value})
            with torch.device("meta"):
                model = method_type(settings, backbone, 8, 3, 2).model
            read.add((tuple(model.operators), model.num_layers))
    assert len(read) == 1
