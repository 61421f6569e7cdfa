"""Compare methods and backbones on a user graph."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from canet.data.benchmarks.dataset import USER_GRAPH
from canet.data.task import ShiftTask
from canet.defaults import changed
from canet.errors import CanetError, InputError
from canet.models import Options, all_methods, get_learner, is_network
from canet.runs.comparison_task import score_on_test, write_task
from canet.runs.run import FailedJob, run_jobs
from canet.runs.worker import job_folder
from canet.store import RunConfig
from canet.store.summary import ScoredRun, summarise

RUNS = "runs"


def applicable_methods(task: ShiftTask) -> list[str]:
    """Return the methods and learners that can train on a task; `auto` only by name."""
    found = []
    for name in all_methods():
        with suppress(InputError):
            get_learner(name, options=Options("cpu")).check(task)
            found.append(name)
    return [name for name in found if name != "auto"]


def base_config(method: str, backbone: str, settings: dict[str, Any], seed: int = 0) -> RunConfig:
    """Return the configuration of a run on a user graph."""
    return RunConfig(USER_GRAPH, "paper", 0, "original", False, method, backbone, settings, seed)


def compare_on_graph(
    task: ShiftTask,
    *,
    methods: Sequence[str],
    backbones: Sequence[str],
    seeds: int,
    changes: dict[str, Any],
    out: Path,
    jobs: int = 1,
    device: str = "auto",
    quiet: bool = False,
) -> tuple[list[dict[str, Any]], list[FailedJob]]:
    """Train every method with every backbone and seed; return a summary for each pair.

    The summaries are sorted by the mean score on the test set. A setting in `changes` applies to
    the methods that have it, but one of them must. `auto` is trained once, without a backbone. The
    task is a `comparison_task`; `jobs`, `device` and `quiet` are as for `run_jobs`.
    """
    groups = []
    known: set[str] = set()
    for method in methods:
        names = set(asdict(changed(method, {})))
        known |= names
        settings = asdict(changed(method, {k: v for k, v in changes.items() if k in names}))
        for backbone in backbones if is_network(method) else [method]:
            groups.append([base_config(method, backbone, settings, s) for s in range(seeds)])
    if unknown := sorted(changes.keys() - known):
        raise CanetError(f"none of the methods has a setting '{unknown[0]}': see `canet methods`")
    write_task(out, task)
    configs = [config for group in groups for config in group]
    root = out / RUNS
    failed = run_jobs(
        configs, root, jobs=jobs, device=device, data_root=out, retry=True, quiet=quiet, task=task
    )
    summaries = []
    for group in groups:
        places = [place for config in group if (place := job_folder(root, config)).finished]
        runs = [ScoredRun(place.read_config(), place.read_result()) for place in places]
        if runs:
            summaries.append(summarise(runs, task.metric))
    return sorted(summaries, key=lambda one: -score_on_test(one["scores"])["mean"]), failed
