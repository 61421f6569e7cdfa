"""Search of hyper-parameters on validation data: workers that share a study, and what they found.

A search lives in a folder: `search.json` says what is searched, `journal.log` holds every trial
unless another storage is named, `best.json` the best settings and how they were found.
"""

from __future__ import annotations

import json
import multiprocessing
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import wait
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from canet.console import METRIC_NAMES, SECONDS_BETWEEN_LINES, print_table
from canet.data import CATALOG
from canet.errors import CanetError
from canet.files import read_json, write_json
from canet.memory import keep_freed_memory
from canet.presets import BEST
from canet.search.objective import Objective
from canet.search.study import (
    ERROR,
    Plan,
    done_trials,
    enqueue_start,
    importances,
    open_study,
    ranked_trials,
    try_settings,
)
from canet.training.trainer import device_name, pick_device, versions

if TYPE_CHECKING:
    import optuna

JOURNAL, PLAN = "journal.log", "search.json"
SECONDS_BETWEEN_LOOKS = 0.5
NUM_SHOWN = 5

Look = Callable[[], None]


def run_search(
    plan: Plan,
    trials: int,
    out: Path,
    storage: str | None = None,
    jobs: int = 1,
    device: str = "auto",
    data_root: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Search until there are so many trials in all, and write the best settings.

    Args:
        plan: What is searched.
        trials: Number of trials, those of earlier calls included.
        out: Folder of the search.
        storage: Journal file or SQL URL; default a journal in `out`.
        jobs: Number of worker processes.
        device: `auto`, `cpu` or `cuda`.
        data_root: Folder with raw data.
        quiet: Show no progress.

    Returns:
        The content of `best.json`.
    """
    hardware = device_name(pick_device(device))
    _begin(plan, out)
    place = storage or str(out / JOURNAL)
    study = open_study(plan, place)
    wanted = min(trials, plan.size)
    missing = wanted - len(done_trials(study))
    if missing > 0:
        objective = Objective(plan.base, plan.seeds, device, data_root)
        enqueue_start(study, plan)
        context = multiprocessing.get_context("spawn")
        tickets = context.Semaphore(missing)
        with _showing(study, plan, wanted, quiet) as look:
            if jobs == 1:
                _work(study, plan, wanted, objective, tickets, look)
            else:
                arguments = (plan, wanted, place, device, data_root, tickets)
                workers = [
                    context.Process(target=_worker, args=arguments, daemon=True)
                    for _ in range(min(jobs, missing))
                ]
                _watch(workers, look)
    best = _outcome(study, plan, hardware) | {"train": _train_command(plan, out, data_root)}
    write_json(out / BEST, best)
    return best


def show_search(best: dict[str, Any]) -> None:
    """The best trials, what mattered, and the next command."""
    names = list(best["settings"])
    rows = []
    for trial in best["best_trials"]:
        values = [f"{value:g}" for value in trial["settings"].values()]
        rows.append([str(trial["number"]), f"{trial['valid']:.2f}", *values])
    runs = f"mean of {best['seeds']} runs" if best["seeds"] > 1 else "one run"
    print_table(
        f"{best['task']}, {best['method']}-{best['backbone']}: best of {best['trials']} trials "
        f"({best['pruned']} pruned, {best['failed']} failed) of {best['epochs']} epochs by "
        f"validation {METRIC_NAMES[best['metric']]} %, {runs}",
        ["trial", "valid", *names],
        rows,
    )
    if best["start"]["valid"] is not None:
        print(f"The search started at {best['start']['valid']:.2f}.")
    if best["importances"]:
        shares = (f"{name} {share:.0%}" for name, share in best["importances"].items())
        print(f"Importance: {', '.join(shares)}")
    print(f"Train with the best settings: {best['train']}")


def _begin(plan: Plan, out: Path) -> None:
    """Claim the folder for a search, or check that what lies there is the same search."""
    content = json.loads(json.dumps(plan.content))
    path = out / PLAN
    if not path.exists():
        write_json(path, content)
    elif read_json(path) != content:
        raise CanetError(f"'{out}' holds another search: choose another folder for --out")


def _work(
    study: optuna.Study,
    plan: Plan,
    wanted: int,
    objective: Objective,
    tickets: Semaphore,
    look: Look,
) -> None:
    """Do trials as long as there are tickets for them, and as other machines leave some to do."""
    while len(done_trials(study)) < wanted and tickets.acquire(block=False):
        if not try_settings(study, plan, objective):
            return
        look()


def _worker(
    plan: Plan,
    wanted: int,
    storage: str,
    device: str,
    data_root: Path | None,
    tickets: Semaphore,
) -> None:
    """A process that works with one thread until the work or its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    keep_freed_memory()
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is None or not parent.is_alive():
            sys.exit()

    objective = Objective(plan.base, plan.seeds, device, data_root)
    _work(open_study(plan, storage), plan, wanted, objective, tickets, end_with_parent)


def _watch(workers: list[Any], look: Look) -> None:
    """Start workers and look until the last has ended; they never outlive this call."""
    try:
        for worker in workers:
            worker.start()
        while alive := [worker.sentinel for worker in workers if worker.is_alive()]:
            wait(alive, SECONDS_BETWEEN_LOOKS)
            look()
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.terminate()
                worker.join()
    if codes := [worker.exitcode for worker in workers if worker.exitcode]:
        raise CanetError(
            f"a worker of the search ended with exit code {codes[0]}: lower --jobs if memory is "
            f"short; the same command goes on where it stopped"
        )


@contextmanager
def _showing(study: optuna.Study, plan: Plan, wanted: int, quiet: bool) -> Iterator[Look]:
    """One bar with trials done and the best score on a terminal, a line now and then elsewhere."""
    base = plan.base
    label = f"{base.task} {base.method}-{base.backbone}"

    def text() -> str:
        ranked = ranked_trials(study)
        best = f"{ranked[0].value:.2f}" if ranked else "–"
        return f"{len(done_trials(study))}/{wanted} trials, best valid {best}"

    if quiet:
        yield lambda: None
        return
    if not sys.stderr.isatty():
        last = time.monotonic()

        def tell() -> None:
            nonlocal last
            if time.monotonic() - last > SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                print(f"{label}: {text()}", file=sys.stderr)

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    bar = Progress(
        *columns, TextColumn("{task.fields[text]}"), console=Console(stderr=True), transient=True
    )
    with bar:
        done = len(done_trials(study))
        shown = bar.add_task(label, total=wanted, completed=done, text=text())
        yield lambda: bar.update(shown, completed=len(done_trials(study)), text=text())


def _outcome(study: optuna.Study, plan: Plan, hardware: str) -> dict[str, Any]:
    """What was found and how, as `best.json` tells it."""
    base, done, ranked = plan.base, done_trials(study), ranked_trials(study)
    if not ranked:
        errors = [trial.user_attrs[ERROR] for trial in done if ERROR in trial.user_attrs]
        raise CanetError(f"no trial ended with a score: {errors[0] if errors else 'all pruned'}")
    start = [trial.value for trial in ranked if trial.params == plan.start]
    states = [trial.state.name for trial in done]
    return {
        "task": base.task,
        "protocol": base.protocol,
        "data_seed": base.data_seed,
        "features": base.features,
        "inductive": base.inductive,
        "method": base.method,
        "backbone": base.backbone,
        "settings": _ordered(plan, ranked[0].params),
        "valid": ranked[0].value,
        "metric": CATALOG[base.task].metric,
        "start": {"settings": plan.start, "valid": start[0] if start else None},
        "trials": len(done),
        "pruned": states.count("PRUNED"),
        "failed": states.count("FAIL"),
        "epochs": base.settings["epochs"],
        "seeds": plan.seeds,
        "sampler": plan.sampler,
        "importances": importances(study),
        "best_trials": [
            {"number": t.number, "valid": t.value, "settings": _ordered(plan, t.params)}
            for t in ranked[:NUM_SHOWN]
        ],
        "command": _search_command(plan, len(done)),
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": hardware,
        "versions": versions() | {"optuna": version("optuna")},
    }


def _ordered(plan: Plan, params: dict[str, Any]) -> dict[str, Any]:
    """Settings in the order of their declaration, whatever order a storage gives."""
    return {name: params[name] for name in plan.ranges}


def _search_command(plan: Plan, trials: int) -> str:
    words = ["canet", "search", *_task_words(plan), "--sampler", plan.sampler]
    words += ["--trials", str(trials), "--epochs", str(plan.base.settings["epochs"])]
    return shlex.join(words + (["--seeds", str(plan.seeds)] if plan.seeds > 1 else []))


def _train_command(plan: Plan, out: Path, data_root: Path | None) -> str:
    words = ["canet", "train", *_task_words(plan), "--settings", str(out / BEST)]
    return shlex.join(words + (["--data-root", str(data_root)] if data_root else []))


def _task_words(plan: Plan) -> list[str]:
    """Task, method and backbone on the command line, and how the task is loaded."""
    base = plan.base
    words = [base.task, "--method", base.method, "--backbone", base.backbone]
    words += ["--features", base.features] if base.features != "original" else []
    words += ["--protocol", base.protocol] if base.protocol != "paper" else []
    words += ["--data-seed", str(base.data_seed)] if base.data_seed else []
    return words + (["--inductive"] if base.inductive else [])
