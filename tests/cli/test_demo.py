import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import pytest
from PIL import Image

from canet.cli import demo
from canet.cli.demo import MODELS, DemoScores, run_demo
from canet.data.benchmarks import synthetic
from canet.models import network
from canet.models.portfolio import PRESETS
from canet.report.score import Score
from canet.runs.evaluate import evaluate_runs
from tests.support.commands import files_of


@dataclass(frozen=True)
class Shown:
    """A demonstration of three epochs on two draws, and what it printed."""

    folder: Path
    text: str

    def row(self, label: str) -> list[str]:
        (line,) = (line for line in self.text.splitlines() if line.startswith(f"│ {label} "))
        return [cell.strip() for cell in line.strip("│").split("│")]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "EPOCHS", 3)
        patch.setattr(demo, "MAX_JOBS", 1)
        patch.setattr(demo, "DATA_SEEDS", (0, 1))
        patch.setattr(synthetic, "NUM_USERS", 300)
        patch.setitem(PRESETS, "fast", PRESETS["fast"][:1])
        yield


@pytest.fixture(scope="module")
def shown(quick: None, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo")
    with redirect_stdout(io.StringIO()) as text:
        run_demo(folder, "cpu", quiet=False)
    return Shown(folder, text.getvalue())


def test_demo_shows_both_scores_of_every_model(shown: Shown) -> None:
    assert "mean ± std over 2" in shown.text
    assert "Under shift " in shown.text
    assert "canet train synthetic --protocol disjoint" in shown.text
    assert len(list(shown.folder.glob("*/seed-0/done"))) == len(MODELS) * 2
    with Image.open(shown.folder / "demo.png") as image:
        assert (image.format, image.size) == ("PNG", (1500, 600))
    summaries = evaluate_runs(shown.folder, "cpu")
    for model in MODELS:
        wanted = model.method, model.features
        scores = [s["scores"] for s in summaries if (s["method"], s["features"]) == wanted]
        in_distribution = [s["test_id"]["mean"] for s in scores]
        shifted = [s["test_ood_mean"]["mean"] for s in scores]
        assert shown.row(model.label) == [
            model.label,
            f"{100 * mean(in_distribution):.1f} ± {100 * stdev(in_distribution):.1f}",
            f"{100 * mean(shifted):.1f} ± {100 * stdev(shifted):.1f}",
            f"{100 * (mean(in_distribution) - mean(shifted)):.1f}",
        ]


@pytest.mark.parametrize(
    ("erm", "ours", "text"),
    [
        ([0.6, 0.62], [0.9, 0.92], "CaNet-GCN is 30.0 above GCN (ERM): more than the spread."),
        ([0.9, 0.92], [0.8, 0.99], "GCN (ERM) is 1.5 above CaNet-GCN: within the spread."),
        ([0.9, 0.92], [0.92, 0.9], "GCN (ERM) and CaNet-GCN are tied."),
    ],
)
def test_demo_says_who_is_above_and_whether_by_more_than_the_spread(
    erm: list[float], ours: list[float], text: str
) -> None:
    scores = (erm, ours, [0.5, 0.5], [0.99, 0.99])
    lines = [
        DemoScores(model.label, "", Score([0.9]), Score(ood, digits=1), [])
        for model, ood in zip(MODELS, scores, strict=True)
    ]
    assert demo.verdict(lines) == f"Under shift {text}"


def test_second_demo_reads_the_finished_runs_and_prints_the_same(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_of(shown.folder)
    monkeypatch.setattr(network, "train_loops", lambda *_: pytest.fail("trained again"))
    run_demo(shown.folder, "cpu", quiet=False)
    assert capsys.readouterr().out == shown.text
    after = files_of(shown.folder)
    assert after.pop("demo.png") > before.pop("demo.png")
    assert after == before
