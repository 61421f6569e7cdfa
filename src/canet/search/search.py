"""Search of hyper-parameters on validation data: workers that share a study, and what they found.

A search lives in a folder: `search.json` says what is searched, `journal.log` holds every trial
unless another storage is named, `best.json` the best settings and how they were found.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from canet.data import DATASETS
from canet.data.metrics import METRIC_NAMES
from canet.errors import CanetError
from canet.presets import BEST
from canet.runs.data import data_now
from canet.runs.engine import Engine, Here, WorkerDied, open_engine
from canet.search.objective import Objective
from canet.search.presence import Presence, present_at
from canet.search.samplers import places
from canet.search.storage import failure_told, open_storage, reach, serve
from canet.search.study import (
    ERROR,
    Plan,
    begin_anew,
    check_data,
    check_trials,
    done_trials,
    enqueue_start,
    importances,
    open_study,
    optimize,
    ranked_trials,
)
from canet.training.trainer import device_name, pick_device, versions
from canet.util.console import print_table
from canet.util.files import read_json, write_json
from canet.util.progress import Display

JOURNAL, PLAN = "journal.log", "search.json"
SECONDS_BETWEEN_LOOKS = 0.5
NUM_SHOWN = 5

Look = Callable[[], None]


@dataclass(frozen=True)
class Worker:
    """What a slot of an engine does: trials, until there are as many as wanted."""

    plan: Plan
    wanted: int
    storage: BaseStorage
    device: str
    data_root: Path | None

    def __call__(self, dead: frozenset[int], look: Look | None) -> str:
        """Trials that are not `dead` are left to other workers. Returns the hardware."""
        reach(self.storage)
        with failure_told():
            study = open_study(self.plan, self.storage)
            objective = Objective(self.plan.base, self.plan.seeds, self.device, self.data_root)
            check_data(study, objective.data)
            optimize(study, self.plan, self.wanted, objective, dead, look)
        return device_name(pick_device(self.device))


def run_search(
    plan: Plan,
    trials: int,
    out: Path,
    storage: str | None = None,
    jobs: int = 1,
    device: str = "auto",
    data_root: Path | None = None,
    quiet: bool = False,
    ray: str | None = None,
) -> dict[str, Any]:
    """Search until there are so many trials in all, and write the best settings.

    Args:
        plan: What is searched.
        trials: Number of trials, those of earlier calls included.
        out: Folder of the search.
        storage: Journal file or SQL URL; default a journal in `out`.
        jobs: Number of trials at a time.
        device: `auto`, `cpu` or `cuda`.
        data_root: Folder with raw data, on every machine that takes part.
        quiet: Show no progress.
        ray: Address of a Ray cluster that does the trials, or `auto`; None for this machine.

    Returns:
        The content of `best.json`.
    """
    _begin(plan, out)
    place = storage or str(out / JOURNAL)
    kept = open_storage(place)
    study = open_study(plan, kept)
    check_trials(study, plan)
    wanted = min(trials, len(plan.points))
    done = len(done_trials(study))
    if done >= wanted:
        if data := data_now(plan.base, data_root):
            check_data(study, data)
        hardware = device_name(pick_device(device))
    else:
        with (
            failure_told(),
            present_at(place) as presence,
            Display(wanted, done, "trials", quiet) as display,
            open_engine(jobs, ray, device) as engine,
            serve(kept) if engine.remote else nullcontext(kept) as shared,
        ):
            worker = Worker(plan, wanted, shared, device, data_root)
            look = partial(_show, display, study, plan)
            hardware = _do_trials(engine, worker, study, presence, look)
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
        return
    try:
        there = read_json(path)
    except (ValueError, RecursionError):
        raise CanetError(
            f"'{path}' is damaged: remove it if the search is this one, or choose another --out"
        ) from None
    if there != content:
        raise CanetError(f"'{out}' holds another search: choose another folder for --out")


def _do_trials(
    engine: Engine, worker: Worker, study: optuna.Study, presence: Presence, look: Look
) -> str:
    """Let the slots of an engine do the trials that are missing; what they ran on."""
    hardware: set[str] = set()
    # Once is enough, unless an engine repeated a task whose machine died in the middle of a trial.
    while (missing := worker.wanted - len(done_trials(study))) > 0:
        with presence.alone() as alone:
            if alone:
                begin_anew(study)
            enqueue_start(study, worker.plan)
        unended = study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
        dead = frozenset(trial.number for trial in unended)
        tasks = [
            engine.submit(slot, worker, dead, look if isinstance(engine, Here) else None)
            for slot in range(min(engine.size, missing))
        ]
        while wait(tasks, SECONDS_BETWEEN_LOOKS).not_done:
            look()
        try:
            hardware |= {task.result() for task in tasks}
        except WorkerDied as error:
            raise CanetError(
                f"{error}: lower --jobs if memory is short; the same command goes on where it "
                "stopped"
            ) from None
    return ", ".join(sorted(hardware))


def _show(display: Display, study: optuna.Study, plan: Plan) -> None:
    done, ranked = done_trials(study), ranked_trials(study)
    failed = sum(ERROR in trial.user_attrs for trial in done)
    best = f"best valid {ranked[0].value:.2f}" if ranked else "no score yet"
    label = f"{plan.base.task} {plan.base.method}-{plan.base.backbone}"
    display.update(len(done), failed=failed, text=f"{label}, {best}")


def _outcome(study: optuna.Study, plan: Plan, hardware: str) -> dict[str, Any]:
    """What was found and how, as `best.json` tells it."""
    base, done, ranked = plan.base, done_trials(study), ranked_trials(study)
    if not ranked:
        errors = [trial.user_attrs[ERROR] for trial in done if ERROR in trial.user_attrs]
        raise CanetError(f"no trial ended with a score: {errors[0] if errors else 'all pruned'}")
    place = places(study.get_trials(deepcopy=False))
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
        "metric": DATASETS[base.task].metric,
        "start": {"settings": plan.start, "valid": start[0] if start else None},
        "trials": len(done),
        "pruned": states.count("PRUNED"),
        "failed": states.count("FAIL"),
        "epochs": base.settings["epochs"],
        "seeds": plan.seeds,
        "sampler": plan.sampler,
        "importances": importances(study),
        "best_trials": [
            {"number": place[t.number], "valid": t.value, "settings": _ordered(plan, t.params)}
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
    words += ["--generator", base.generator] if base.generator != "shared" else []
    words += ["--data-seed", str(base.data_seed)] if base.data_seed else []
    return words + (["--inductive"] if base.inductive else [])
