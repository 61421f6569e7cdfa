"""Search for settings on validation data.

The folder of a search contains `search.json` (the plan of the search), `journal.log` (all trials,
unless another journal is used) and `best.json` (the best settings and how they were found).
"""

import json
import random
import shlex
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import optuna

from canet.data import DATASETS
from canet.data.benchmarks.dataset import USER_GRAPH
from canet.defaults import BEST
from canet.errors import CanetError
from canet.runs.comparison_task import read_names
from canet.search.objective import Objective, TrialJob, train_trial
from canet.search.study import (
    DATA,
    DEVICE,
    ERROR,
    Plan,
    ask,
    done_trials,
    importances,
    open_journal,
    open_study,
    ranked_trials,
    record,
)
from canet.store.result import versions
from canet.util.files import read_regular, write_bytes, write_errors, write_json
from canet.util.jobs import WorkerDied, open_pool, run_all
from canet.util.progress import Display
from canet.util.schema import CHECKSUM, checksum_of

JOURNAL, PLAN = "journal.log", "search.json"
RECORDED = ("task", "protocol", "data_seed", "features", "inductive", "method", "backbone")
"""Parts of the configuration that best.json has."""
NUM_BEST_TRIALS = 5  # trials that are listed in best.json


def run_search(
    plan: Plan,
    trials: int,
    out: Path,
    *,
    storage: Path | None = None,
    jobs: int = 1,
    device: str = "auto",
    data_root: Path | None = None,
    quiet: bool = False,
    ray: str | None = None,
    graph: Sequence[str] = ("GRAPH",),
) -> dict[str, Any]:
    """Run trials until there are `trials` with those of earlier calls; return the best settings.

    A grid ends when all its settings have been tried. The `storage` is a journal file, by default
    one in the folder `out`. `graph` are the words of a command that read the user's graph. Other
    arguments as for `run_jobs`. The result is the content of `best.json`.
    """
    _claim_folder(plan, out)
    path = storage or out / JOURNAL
    with write_errors(path):
        journal = open_journal(path)
        study = open_study(plan, journal)
        wanted, done = min(trials, plan.max_trials), done_trials(study)
        if len(done) >= wanted:
            jobs, ray = 1, None
        elif plan.start not in [trial.params for trial in done]:
            study.enqueue_trial(plan.start)
        with (
            open_pool(jobs, ray, device) or nullcontext() as pool,
            Display(wanted, len(done), "trials", quiet) as display,
        ):
            asked: dict[int, optuna.Trial] = {}

            def ask_all() -> Iterator[TrialJob]:
                """Yield the missing trials until there are enough, perhaps of other commands."""
                for number in range(wanted - len(done_trials(study))):
                    if len(done_trials(study)) < wanted:
                        trials = len(study.get_trials(deepcopy=False))
                        seed = random.Random(f"{number} {trials}").getrandbits(32)
                        trial = ask(plan, journal, seed)  # other commands draw other seeds
                        asked[trial.number] = trial
                        scored, data = ranked_trials(study), study.user_attrs.get(DATA)
                        yield TrialJob(trial.number, trial.params, scored, data)

            objective = Objective(plan, device, data_root)
            for job, found in run_all(pool, train_trial, ask_all(), shared=objective, root=out):
                if isinstance(found, WorkerDied):
                    raise found
                record(study, asked.pop(job.trial), *found)
                _show_progress(display, study, plan)
        is_graph = plan.base.task == USER_GRAPH
        metric = read_names(data_root)[0] if is_graph else DATASETS[plan.base.task].metric
        best = _best(study, plan, metric)
        best |= _commands(plan, graph, out, data_root, best["trials"])
    best[CHECKSUM] = checksum_of(best)
    write_json(out / BEST, best)
    return best


def _claim_folder(plan: Plan, out: Path) -> None:
    """Write the plan into a new folder, or check that the folder contains the same search."""
    content, path = (json.dumps(plan.content, indent=2) + "\n").encode(), out / PLAN
    if not path.exists():
        write_bytes(path, content)
    elif read_regular(path) != content:
        raise CanetError(f"'{out}' contains another search: choose another folder for --out")


def _show_progress(display: Display, study: optuna.Study, plan: Plan) -> None:
    done, ranked = done_trials(study), ranked_trials(study)
    failed = sum(ERROR in trial.user_attrs for trial in done)
    best = f"best valid {ranked[0].value:.2%}" if ranked else "no score yet"
    label = f"{plan.base.task} {plan.base.method}-{plan.base.backbone}"
    display.update(len(done), failed=failed, text=f"{label}, {best}")


def _best(study: optuna.Study, plan: Plan, metric: str) -> dict[str, Any]:
    """Return the content of `best.json`: the best settings and how they were found."""
    base, done, ranked = plan.base, done_trials(study), ranked_trials(study)
    if not ranked:
        errors = [trial.user_attrs[ERROR] for trial in done if ERROR in trial.user_attrs]
        raise CanetError(
            "no trial ended with a score: " + (errors[0] if errors else "all trials were pruned")
        )
    start = [trial.value for trial in ranked if trial.params == plan.start]
    states = [trial.state.name for trial in done]
    return {
        **{name: getattr(base, name) for name in RECORDED},
        "settings": _ordered(plan, ranked[0].params),
        "valid": ranked[0].value,
        "metric": metric,
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
            for t in ranked[:NUM_BEST_TRIALS]
        ],
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": ", ".join(sorted({trial.user_attrs.get(DEVICE, "unknown") for trial in done})),
        "versions": versions() | {"optuna": version("optuna")},
    }


def _ordered(plan: Plan, params: dict[str, Any]) -> dict[str, Any]:
    """Return settings in the order of their declaration, which a journal may change."""
    return {name: params[name] for name in plan.ranges}


def _commands(
    plan: Plan, graph: Sequence[str], out: Path, data_root: Path | None, trials: int
) -> dict[str, str]:
    """Return the command of this search, and the one that trains with its best settings."""
    base, is_graph = plan.base, plan.base.task == USER_GRAPH
    words = [*graph] if is_graph else [base.task]
    words += ["--method", base.method, "--backbone", base.backbone]
    words += ["--features", base.features] if base.features != "original" else []
    words += ["--protocol", base.protocol] if base.protocol != "paper" else []
    words += ["--generator", base.generator] if base.generator != "shared" else []
    words += ["--data-seed", str(base.data_seed)] if base.data_seed else []
    words += ["--inductive"] if base.inductive else []
    epochs = ["--epochs", str(base.settings["epochs"])]
    search = ["canet", "search", *words, "--sampler", plan.sampler, "--trials", str(trials)]
    search += [*epochs, *(["--seeds", str(plan.seeds)] if plan.seeds > 1 else [])]
    train = ["canet", "fit" if is_graph else "train", *words, "--settings", str(out / BEST)]
    if is_graph:
        train += [*epochs, "--out", "MODEL"]
    elif data_root:
        train += ["--data-root", str(data_root)]
    return {"command": shlex.join(search), "train": shlex.join(train)}
