"""The benchmark: the plain implementation is CaNet, and the harness records all measurements."""

import os
import signal
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import ceiling, fill_docs, growth, harness, implementations
from benchmarks.__main__ import app
from benchmarks.cases import Case, cases
from benchmarks.plain import PlainCaNet, PlainTraining
from benchmarks.process import measure_jobs
from benchmarks.results import Results
from benchmarks.targets import LARGEST, checks
from benchmarks.worker import Order
from canet.data import load_task
from canet.methods.canet import CaNetMethod, CaNetSettings
from canet.models import Trainer
from canet.nn import CaNet, NormalisedGraph
from canet.util.files import read_json

RESULTS = Path(__file__).parents[2] / "results" / "performance"
NODES, FEATURES, CLASSES = 7, 5, 3
EDGES = torch.tensor([[0, 1, 2, 2, 3, 4, 5, 5, 0, 1], [1, 2, 0, 2, 4, 3, 0, 1, 1, 4]])
TINY = CaNetSettings(hidden=4, num_layers=2, num_environments=3)


def plain_twin(model: CaNet, settings: CaNetSettings, backbone: str) -> PlainCaNet:
    """The plain model with the weights of the model of the package."""
    plain = PlainCaNet(FEATURES, CLASSES, settings, backbone)
    plain.phi_in.load_state_dict(model.phi_in.state_dict())
    plain.phi_out.load_state_dict(model.phi_out.state_dict())
    triples = zip(plain.layers, model.branches, model.estimators, strict=True)
    for layer, branches, estimator in triples:
        state = {f"estimator.{name}": t for name, t in estimator.linear.state_dict().items()}
        state["weight"] = branches.weight
        if backbone == "gat":
            state["attention"] = torch.cat([branches.attention_dst, branches.attention_src], dim=1)
        layer.load_state_dict(state)
    return plain


@pytest.mark.parametrize("direction", ["along", "against"])
@pytest.mark.parametrize("estimator", ["node", "graph"])
@pytest.mark.parametrize(
    ("backbone", "propagation"), [("gcn", "symmetric"), ("gcn", "sum"), ("gat", "symmetric")]
)
def test_the_plain_implementation_computes_the_same_logits_and_divergence(
    backbone: Any, propagation: Any, estimator: Any, direction: Any
) -> None:
    torch.manual_seed(0)
    settings = replace(TINY, propagation=propagation, estimator=estimator, direction=direction)
    method = CaNetMethod(settings, backbone, FEATURES, CLASSES).eval()
    plain = plain_twin(method.model, settings, backbone).eval()
    x = torch.randn(NODES, FEATURES)
    ours = method.model(x, NormalisedGraph(EDGES, NODES, method.model.operators).whole(2).blocks)
    logits, divergence = plain(x, EDGES)
    torch.testing.assert_close(logits, ours.logits, rtol=1e-5, atol=1e-6)
    expected = method.divergence(ours.environments, NODES)
    torch.testing.assert_close(divergence.mean(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_plain_implementation_learns() -> None:
    torch.manual_seed(0)
    settings = replace(TINY, hidden=64)
    training = PlainTraining(load_task("synthetic"), settings, "gcn", torch.device("cpu"))
    scores = [training.epoch() for _ in range(8)]
    assert max(scores) > scores[0] + 0.1


def test_erm_is_measured_with_the_width_depth_and_direction_of_canet() -> None:
    case = Case("arxiv", "gcn", variant="symmetric")
    ours, erm = asdict(case.settings()), asdict(case.erm_settings())
    assert erm == {name: ours[name] for name in erm}
    assert ours["direction"] == erm["direction"] == "along"


def test_erm_on_the_same_nodes_reads_what_canet_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("synthetic", "gat")
    against = replace(case.settings(), direction="against")
    monkeypatch.setattr(Case, "settings", lambda case: against)
    task = load_task("synthetic")
    ours, erm, same = (
        implementations._trainer(case, name, task, torch.device("cpu"), 1)
        for name in ("canet", "erm", implementations.SAME_NODES)
    )
    types = [one.learner.method_type for one in (same, erm, ours)]
    assert types[0] is types[1] is not types[2]
    assert same.learner.settings == erm.learner.settings
    assert len(same.fields.batch("train").blocks[0].matrices) == 2
    assert same.fields.batch("train").x.shape == ours.fields.batch("train").x.shape


COMMAND = "--quick --device cpu --tasks synthetic --seconds 0.01"


@pytest.mark.slow
def test_the_harness_measures_every_implementation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(harness, "cases", lambda full, tasks: [Case(tasks[0], "gat")])
    monkeypatch.setattr(Case, "reads_both_ways", True)
    measured = tmp_path / "bench.json"
    app([*COMMAND.split(), "--out", str(measured)], standalone_mode=False)
    results = Results.read(measured)
    (case,) = results.cases
    for implementation in implementations.IMPLEMENTATIONS:
        of = results.of(case, implementation)
        assert min(of["times"]) > 0
        assert of["peak_mb"] >= of["level_mb"] > 0
    assert results.ratio(case) is not None
    assert results.vs_erm(case) is not None
    assert results.intervening(case) is not None
    assert (results.fraction_of_ceiling(case) or 0) > 0
    assert (results.minimum_vs_erm(case) or 0) > 1
    assert results.hardware["threads"] == 1
    assert measured.with_suffix(".svg").exists()
    assert measured.with_suffix(".png").exists()


@pytest.fixture
def embedded() -> Results:
    """The committed measurements of the embedded task with GAT, and of no other case."""
    results = Results.read(RESULTS / "cpu-small.json")
    wanted = {"task": "synthetic", "backbone": "gat"}
    results.content["cases"] = [
        entry for entry in results.content["cases"] if wanted.items() <= entry["case"].items()
    ]
    return results


def test_a_page_depends_only_on_the_measurements(embedded: Results) -> None:
    parts = [fill_docs.MACHINES, *fill_docs.PARTS]
    text = "\n\n".join(["# Title", *(f"<!-- {p} -->\nstale text\n<!-- end {p} -->" for p in parts)])
    filled = fill_docs.fill(text, parts, [embedded])
    assert filled.startswith("# Title")
    assert "stale text" not in filled
    assert "synthetic GAT K 3" in filled
    assert "Targets" not in filled
    assert fill_docs.fill(filled, parts, [embedded]) == filled


def test_a_case_of_two_benchmarks_is_taken_from_the_later_one(embedded: Results) -> None:
    earlier, later = embedded, deepcopy(embedded)
    entry = earlier.content["cases"][0]
    other = {**entry, "case": {**entry["case"], "k": 7}}
    earlier.content["cases"].append(other)
    later.content["cases"][0]["canet"]["times"] = [0.125]
    (both,) = fill_docs.by_device([earlier, later])
    assert [case.k for case in both.cases] == [7, entry["case"]["k"]]
    assert both.spread(both.cases[1], "canet") == (0.125, 0.125, 0.125)
    assert len(earlier.cases) == 2


def test_the_committed_tables_match_the_measurements() -> None:
    names = ("cpu-small", "cpu-arxiv", "cpu-growth", "h200-small", "h200", "h200-growth")
    runs = [Results.read(RESULTS / f"{name}.json") for name in names]
    text = fill_docs.PAGE.read_text(encoding="utf-8")
    assert fill_docs.fill(text, (fill_docs.MACHINES, *fill_docs.PARTS), runs) == text


def make_results(**peaks_mb: float | None) -> Results:
    """Peak memory of plain GAT on Arxiv for each K (None: out of memory), and of CaNet at 10."""
    results = Results("cpu", "python -m benchmarks", "2025-01-01")
    for name, peak in peaks_mb.items():
        k = int(name.removeprefix("k"))
        job = {"kind": "case", "case": asdict(replace(LARGEST, k=k)), "implementation": "plain"}
        measured = {"times": [1.0], "peak_mb": peak, "level_mb": 1.0}
        results.add(job, measured if peak else {"died": "out of memory", "peak_mb": 9.0})
    job = {"kind": "case", "case": asdict(LARGEST), "implementation": "canet"}
    results.add(job, {"times": [0.5], "peak_mb": 1000.0, "level_mb": 1.0})
    return results


def test_memory_of_an_implementation_that_ran_out_of_it_is_extrapolated() -> None:
    results = make_results(k10=None, k1=3000.0, k2=5000.0, k3=7000.0)
    needed, extrapolated = results.needed_mb(LARGEST)
    assert needed == pytest.approx(21000)
    assert extrapolated
    check = next(c for c in checks(results) if "peak memory" in c.name)
    assert check.met
    assert "extrapolated" in check.note
    measured = make_results(k10=8000.0, k1=3000.0, k2=5000.0)
    assert measured.needed_mb(LARGEST) == (8000.0, False)


def test_an_interrupted_benchmark_keeps_its_measurements_and_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[dict[str, Any]] = []

    def measured(jobs: list[Any], order: Order) -> Iterator[tuple[Any, dict[str, Any]]]:
        for job in jobs:
            if len(done) == 3:
                raise KeyboardInterrupt
            done.append(job)
            yield job, {} if job["kind"] == "ceiling" else {"times": [1.0], "peak_mb": 2.0}

    monkeypatch.setattr(harness, "measure_jobs", measured)
    (tmp_path / "bench.json").write_text("earlier")
    with pytest.raises(KeyboardInterrupt):
        harness.run_bench(tmp_path / "bench.json", "command", device="cpu", quiet=True)
    assert (tmp_path / "bench.json").read_text() == "earlier"
    assert len(read_json(tmp_path / "bench.unfinished.json")["cases"][0]) == 1 + 2


def measure_or_die(job: dict[str, Any], order: Order) -> dict[str, Any]:
    if job["kind"] == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"kind": job["kind"], "pid": os.getpid()}


@pytest.mark.slow
def test_a_process_that_dies_fails_only_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.process.work", measure_or_die)
    jobs = [{"kind": kind} for kind in ("one", "two", "bad", "three")]
    first, second, bad, third = (
        answer for _, answer in measure_jobs(jobs, Order("cpu", 0.0, None))
    )
    assert first["pid"] == second["pid"] != third["pid"]
    assert "SIGKILL" in bad["died"]
    assert [answer["kind"] for answer in (first, second, third)] == ["one", "two", "three"]


def test_slopes_are_the_exponents_of_power_laws() -> None:
    values = [1.0, 2.0, 8.0]
    assert growth.slope(values, [3 * v**1.5 for v in values]) == pytest.approx(1.5)


@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_growth_measures_a_random_graph(backbone: str) -> None:
    size = growth.Size(nodes=200, edges=1000, hidden=8)
    of = growth.measure_size(size, backbone, torch.device("cpu"))
    assert len(of["times"]) == growth.CHECKS - 1


def test_the_cost_of_a_layer_is_counted_by_the_rule() -> None:
    case = Case("synthetic", "gcn")
    trainer = Trainer(load_task("synthetic"), "canet", "gcn", case.settings(), "cpu")
    batch = trainer.fields.batch("valid")
    with torch.device("meta"):
        model = trainer.learner.new_method(trainer.task).model
    operations = ceiling.forward_cost(model, batch)
    block, matrix = batch.blocks[0], batch.blocks[0].matrices[model.operators[0]]
    product = operations[1]
    assert product.flops == 2 * matrix.pattern.nnz * 64
    moved = 8 * matrix.pattern.nnz + 4 * 64 * (block.num_src + block.num_dst)
    assert product.bytes == moved
    assert len(operations) == 2 + 3 * len(batch.blocks)
    slow = ceiling.Ceiling(1.0, 1e30)
    assert ceiling.floor_seconds(operations, slow) == sum(op.bytes for op in operations)


def test_the_cost_of_a_backbone_is_that_of_its_propagations_and_maps() -> None:
    settings = replace(Case("synthetic", "gat").erm_settings(), num_layers=3)
    trainer = Trainer(load_task("synthetic"), "erm", "gat", settings, "cpu")
    batch = trainer.fields.batch("valid")
    model = trainer.learner.new_method(trainer.task).model
    _, first, between, second, third, last = ceiling.forward_cost(model, batch)
    for block, attention in zip(batch.blocks, (first, second, third), strict=True):
        entries = block.matrices[model.operators[0]].pattern.nnz
        assert attention.flops == entries * (2 * 64 + ceiling.OPERATIONS_PER_SCORE)
        assert attention.bytes == 4 * (entries + 65 * (block.num_src + block.num_dst))
    assert between.flops == 2 * batch.blocks[1].num_src * 64 * 64
    assert last.flops == 2 * batch.y.numel() * 64 * model.phi_out.out_features


def test_rounds_add_up() -> None:
    results = make_results(k1=3000.0)
    job = {"kind": "case", "case": asdict(replace(LARGEST, k=1)), "implementation": "plain"}
    results.add(job, {"times": [3.0], "peak_mb": 3500.0, "level_mb": 1.0})
    of = results.of(replace(LARGEST, k=1), "plain")
    assert of["times"] == [1.0, 3.0]
    assert of["peak_mb"] == 3500.0


def test_on_a_cpu_every_measurement_has_its_own_process() -> None:
    chosen = cases(full=True)
    for device, is_separate in (("cpu", True), ("cuda", False)):
        batches = harness.case_batches(chosen, device, full=True) + harness.growth_batches(device)
        assert (max(map(len, batches)) == 1) == is_separate
