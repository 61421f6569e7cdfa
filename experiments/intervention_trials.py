"""Trials of other forms of interventions, and of their width.

    python -m experiments.intervention_trials FILE [--part I/N] [--form NAME] [--generator NAME]

writes one JSON object per run to FILE, as JSON lines: CaNet-GCN with its published settings on
Cora, Citeseer and Pubmed with each generator under `disjoint`. `--part 2/15` runs one of 15 parts.
`python -m experiments.intervention_trials FILE... --table` prints the tables of the page.
"""
# mypy: disable-error-code="union-attr, type-var, arg-type, method-assign, attr-defined"
# The forms change attributes that only trained methods have.

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data import GENERATORS, load_task
from canet.data.benchmarks.spurious import NUM_SPURIOUS, without_spurious_columns
from canet.data.task import ShiftTask
from canet.defaults import unsearched
from canet.methods import Batch, TrainingView, interventions
from canet.methods.canet import CaNetMethod
from canet.methods.interventions import Interventions, groups_of, infer_groups, spread_between
from canet.models import Trainer
from canet.nn import ShiftedFeatures, SparseMatrix
from canet.nn.blocks import Block
from canet.report.score import to_percent
from canet.settings import override
from canet.util.sparse import from_scipy, to_scipy

TASKS = ("pubmed", "citeseer", "cora")
DRAWS, HELD_DRAWS = range(5), range(2)
WIDTHS = (0, 1, 3, 6, 10)
INFERRED = {"interventions": "inferred"}


class Trial(CaNetMethod):
    """Base class: CaNet with another form of inferred interventions."""

    def prepare(self, view: TrainingView) -> None:
        super().prepare(view)
        if self.interventions is not None:
            self.change(self.interventions, view)

    def change(self, found: Interventions, view: TrainingView) -> None:
        """Change the interventions; called once before training."""


class UniformOffsets(Trial):
    """Offsets from a uniform distribution with the same standard deviation."""

    def intervene(self, batch: Batch) -> Batch:
        found = self.interventions
        shape = (found.member.shape[1], found.scale.numel())
        noise = 2 * torch.rand(shape, device=found.scale.device) - 1
        return _shifted(batch, math.sqrt(3) * found.scale * noise, found)


class HalfOfGroups(Trial):
    """In each step, a random half of the groups is not shifted."""

    def intervene(self, batch: Batch) -> Batch:
        shifted = super().intervene(batch)
        chosen = torch.rand(shifted.x.offset.shape[0], 1, device=shifted.x.offset.device) < 0.5
        return replace(batch, x=replace(shifted.x, offset=shifted.x.offset * chosen))


class RandomWidth(Trial):
    """The width of each group and step is uniform between 0 and twice the width."""

    def intervene(self, batch: Batch) -> Batch:
        shifted = super().intervene(batch)
        width = 2 * torch.rand(shifted.x.offset.shape[0], 1, device=shifted.x.offset.device)
        return replace(batch, x=replace(shifted.x, offset=shifted.x.offset * width))


class GroupDirections(Trial):
    """Offsets along the differences between groups instead of independent columns."""

    def change(self, found: Interventions, view: TrainingView) -> None:
        group, count = groups_of(self.settings, view)
        rows = interventions.as_scipy(interventions.rows_of(view.x, view.train))
        own = group[view.train].numpy()
        means = np.stack([np.asarray(rows[own == g].mean(axis=0)).ravel() for g in range(count)])
        directions = (
            torch.from_numpy(means - means.mean(axis=0)).float() * found.group_spread.is_shifted
        )
        width = self.settings.intervention_width / math.sqrt(count - 1)
        self.directions = (width * directions).to(found.scale.device)

    def intervene(self, batch: Batch) -> Batch:
        count = len(self.directions)
        mix = torch.randn(count, count, device=self.directions.device)
        return _shifted(batch, mix @ self.directions, self.interventions)


class LargeShare(Trial):
    """Only columns that vary more between groups than within them: η² ≥ 0.5."""

    def change(self, found: Interventions, view: TrainingView) -> None:
        spread = torch.where(found.group_spread.share >= 0.5, found.group_spread.spread, 0.0)
        found.scale = (self.settings.intervention_width * spread).to(found.scale.device)


class SpuriousOnly(Trial):
    """Offsets on the spurious columns only, which are unknown in practice: not a result."""

    def change(self, found: Interventions, view: TrainingView) -> None:
        found.scale[:-NUM_SPURIOUS] = 0


class SmoothedGroups(Trial):
    """Groups inferred from features that are averaged twice over the neighbours."""

    def change(self, found: Interventions, view: TrainingView) -> None:
        n, (src, dst) = view.x.shape[0], view.edge_index.numpy()
        edges = sp.csr_matrix((np.ones(len(src), np.float32), (dst, src)), shape=(n, n))
        edges = edges + sp.eye(n, dtype=np.float32, format="csr")
        average = sp.diags(1 / np.asarray(edges.sum(axis=1)).ravel()) @ edges
        smooth = average @ (average @ interventions.as_scipy(view.x))
        count = self.settings.num_groups
        seen = replace(
            view, x=SparseMatrix.from_torch(from_scipy(smooth.tocsr().astype(np.float32)))
        )
        group = infer_groups(seen, count)
        shift = spread_between(view.x, view.train, view.y, group[view.train], count)
        spread = torch.where(shift.is_shifted, shift.spread, 0.0)
        found.scale = (self.settings.intervention_width * spread).to(found.scale.device)
        member = torch.nn.functional.one_hot(group[view.field()], count).float()
        found.member = member.to(found.scale.device)


class HiddenOffsets(Trial):
    """Offsets in the first hidden layer instead of the features, with the spread of that layer."""

    def change(self, found: Interventions, view: TrainingView) -> None:
        features = self.model.project

        def project(x: Any, bias: Tensor | None = None) -> Tensor:
            if not isinstance(x, ShiftedFeatures):
                return features(x, bias)
            z = features(x.x, bias)
            means = (x.member.t() @ z.detach()) / x.member.sum(dim=0)[:, None].clamp(min=1)
            scale = self.settings.intervention_width * means.std(dim=0)
            return z + x.member @ (scale * torch.randn_like(means))

        self.model.project = project


class RandomScale(Trial):
    """Shifted columns are also multiplied by 1 + ε, ε ~ N(0, 1), in each group."""

    def change(self, found: Interventions, view: TrainingView) -> None:
        columns = found.group_spread.is_shifted.nonzero().flatten()
        rows = interventions.as_scipy(interventions.rows_of(view.x, view.field()))[
            :, columns.numpy()
        ]
        self.columns = columns.to(found.scale.device)
        block = torch.from_numpy(rows.toarray()).float().to(found.scale.device)
        features = self.model.project

        def project(x: Any, bias: Tensor | None = None) -> Tensor:
            z = features(x, bias)
            if not isinstance(x, ShiftedFeatures):
                return z
            factor = torch.randn(found.member.shape[1], len(columns), device=z.device)
            change = (found.member @ factor) * block
            return z + change @ self.model.phi_in.weight[:, self.columns].t()

        self.model.project = project


class RandomEdges(Trial):
    """Also removes incoming edges of each group, at a random rate in each step."""

    def intervene(self, batch: Batch) -> Batch:
        shifted = super().intervene(batch)
        member = self.interventions.member
        keep = torch.rand(member.shape[1], 1, device=member.device)

        def thin(block: Block) -> Block:
            rate = (member[: block.num_dst] @ keep).squeeze(1)
            matrices = {}
            for operator, matrix in block.matrices.items():
                stays = torch.rand_like(matrix.value) < rate[matrix.pattern.row]
                matrices[operator] = SparseMatrix(matrix.pattern, matrix.value * stays)
            return replace(block, matrices=matrices)

        return replace(shifted, blocks=tuple(thin(block) for block in batch.blocks))


class SupervisedEstimator(Trial):
    """The estimator is trained to predict the groups, by cross entropy instead of the prior."""

    def change(self, found: Interventions, view: TrainingView) -> None:
        group, _ = groups_of(self.settings, view)
        self.group = group[view.train].to(found.scale.device)

    def loss(self, batch: Batch) -> Tensor:
        prediction = self.model(batch.x, batch.blocks)
        loss = self.node_losses(prediction.logits, batch.y).mean()
        for environment in prediction.environments:
            posterior = environment.log_posterior[: batch.y.numel()]
            loss = loss - posterior.gather(1, self.group[:, None]).mean()
        return loss


def _shifted(batch: Batch, offset: Tensor, found: Interventions) -> Batch:
    return replace(batch, x=ShiftedFeatures(batch.x, offset, found.member))


def without_shifted_columns(task: ShiftTask) -> ShiftTask:
    """The task without the columns that interventions would shift."""
    view = Trainer(task, "erm", device="cpu").fields.view()
    group = infer_groups(view, 6)
    shift = spread_between(view.x, view.train, view.y, group[view.train], 6)
    keep = sp.diags((~shift.is_shifted).numpy().astype(np.float32))
    x = from_scipy((to_scipy(task.data.x) @ keep).tocsr())
    return replace(task, data=replace(task.data, x=x))


def without_group(task: ShiftTask, held: int) -> ShiftTask | None:
    """Hold out one inferred group of training nodes; test on its validation nodes.

    None if a class has no training nodes left, or if fewer than five nodes are left for the test.
    The test sets of the task are not used.
    """
    view = Trainer(task, "erm", device="cpu").fields.view()
    both = torch.cat([task.train, task.valid])
    group = infer_groups(replace(view, field=lambda: both), 6)
    train, tested = task.train[group[task.train] != held], task.valid[group[task.valid] == held]
    if task.y[train].unique().numel() < task.num_classes or tested.numel() < 5:
        return None
    valid = task.valid[group[task.valid] != held]
    return replace(task, train=train, valid=valid, test_ood={"held": tested})


class Form(NamedTuple):
    """A name, the method, changed settings, and a change of the task."""

    name: str
    method: type[CaNetMethod] = CaNetMethod
    changes: dict[str, Any] = INFERRED
    view: Callable[[ShiftTask], ShiftTask | None] = lambda task: task


CONTROL = "without the spurious columns"
FORMS = (
    Form(CONTROL, changes={}, view=without_spurious_columns),
    Form("as in the package"),
    Form("shifted columns removed", changes={}, view=without_shifted_columns),
    Form("uniform offsets", UniformOffsets),
    Form("half of the groups", HalfOfGroups),
    Form("width uniform in 0 to 12", RandomWidth),
    Form("directions of groups", GroupDirections),
    Form("columns with η² ≥ 0.5", LargeShare),
    Form("groups of smoothed features", SmoothedGroups),
    Form("spurious columns only (oracle)", SpuriousOnly),
    Form("offsets in the hidden layer", HiddenOffsets),
    Form("also random scales", RandomScale),
    Form("also random edge removal", RandomEdges),
    Form("groups as environments", SupervisedEstimator, INFERRED | {"num_environments": 6}),
)


def held_forms() -> Iterator[Form]:
    """All widths, each with each group held out."""
    for held in range(6):
        for width in WIDTHS:
            changes = INFERRED | {"intervention_width": float(width)} if width else {}
            view = lambda task, held=held: without_group(task, held)  # noqa: E731
            yield Form(f"held {width}", changes=changes, view=view)


def run(task: ShiftTask, form: Form, device: str, epochs: int) -> dict[str, float] | None:
    seen = form.view(task)
    if seen is None:
        return None
    settings = override(unsearched(task.name, "canet", "gcn"), form.changes)
    result = Trainer(seen, form.method, "gcn", settings, device, epochs).run().result
    scores, last = result.scores, result.last_scores
    ood = [name for name in scores if name.startswith("ood/")]
    return {
        "best": mean(scores[name] for name in ood),
        "last": mean(last[name] for name in ood),
        "id": scores["test_id"],
    }


def write(options: argparse.Namespace) -> None:
    generators = [options.generator] if options.generator else GENERATORS
    cases = [(task, g, draw) for task in TASKS for g in generators for draw in DRAWS]
    part, parts = map(int, options.part.split("/"))
    with options.files[0].open("w", encoding="utf-8") as file:
        for name, generator, draw in cases[part::parts]:
            task = load_task(name, data_seed=draw, protocol="disjoint", generator=generator)
            for form in (*FORMS, *(held_forms() if draw in HELD_DRAWS else ())):
                if options.form not in (None, form.name):
                    continue
                scores = run(task, form, options.device, options.epochs)
                if scores:
                    what = {"task": name, "generator": generator, "draw": draw, "form": form.name}
                    file.write(json.dumps(what | scores) + "\n")
                    file.flush()


def tables(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of two tables: difference from the control, accuracy on held-out groups."""
    heads = [(g, task) for g in GENERATORS for task in reversed(TASKS)]
    found: dict[Any, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        found[line["form"], line["generator"], line["task"]][line["draw"]].append(line["best"])
    yield "| form | " + " | ".join(f"{g}, {task}" for g, task in heads) + " | mean |"
    yield "|---" * (len(heads) + 2) + "|"
    for form in (form.name for form in FORMS[1:]):
        cells = []
        for head in heads:
            own, control = found[form, *head], found[CONTROL, *head]
            cells.append([to_percent(own[draw][0] - control[draw][0]) for draw in own])
        texts = [f"{np.mean(c):+.1f} ± {np.std(c, ddof=1):.1f}" if c else "–" for c in cells]
        cells = [cell for cell in cells if cell]
        yield (
            f"| {form} | " + " | ".join(texts) + f" | {np.mean([np.mean(c) for c in cells]):+.1f} |"
        )
    yield ""
    yield "| width | " + " | ".join(f"{g}, {task}" for g, task in heads) + " | mean |"
    yield "|---" * (len(heads) + 2) + "|"
    for width in WIDTHS:
        values = [
            to_percent(mean(v for draw in found[f"held {width}", *head].values() for v in draw))
            for head in heads
        ]
        texts = [f"{value:.1f}" for value in values]
        yield f"| {width or 'none'} | " + " | ".join(texts) + f" | {mean(values):.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--form", choices=[form.name for form in FORMS])
    parser.add_argument("--generator", choices=GENERATORS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", default=500, type=int)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        texts = [line for file in options.files for line in file.read_text().splitlines()]
        print("\n".join(tables([json.loads(line) for line in texts])))
        return
    write(options)


if __name__ == "__main__":
    main()
