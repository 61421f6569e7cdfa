"""Run the jobs of experiments, then write their tables and figures."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from canet.errors import CanetError, check_name
from canet.paper import Experiment, FinishedRuns, Scope
from canet.paper.finished_runs import result_folder, with_curves
from canet.paper.paper_report import write_report
from canet.runs import FailedJob, job_folder, run_jobs
from canet.runs.evaluate import compare_data
from canet.store import RunConfig, RunFolder, unpack_archive
from canet.store.run_folder import folders_below
from canet.util.console import print_table

ALL = "all"
RUNS, TABLES, FIGURES, REPORT = "runs", "tables", "figures", "report.html"
MAX_WIDTH = 9  # maximal number of columns of numbers in a printed table; files have all columns


def reproduce(
    experiments: Mapping[str, type[Experiment]],
    what: str,
    out: Path,
    scope: Scope | None = None,
    jobs: int = 1,
    device: str = "auto",
    retry: bool = False,
    archive: Path | None = None,
    quiet: bool = False,
    ray: str | None = None,
) -> list[FailedJob]:
    """Run the unfinished jobs, write tables and figures, and print the main tables.

    `what` is an experiment or `all`, which also writes the report. An archive of finished runs is
    unpacked first. With `quiet`, only failures are printed. Other arguments as for `run_jobs`. The
    cells of the failed jobs, which are returned, are empty or incomplete.
    """
    if archive and scope and scope.quick:
        raise CanetError(
            "--quick trains for fewer epochs than the runs of an archive: leave out one of them"
        )
    if archive:
        unpack_archive(archive, out / RUNS)
    scope = replace(scope or Scope(), available_features=available_features(out / RUNS))
    chosen = choose(experiments, what, scope)
    wanted = {job_folder(out / RUNS, config).path: config for config in jobs_of(chosen)}
    results = {path: result_folder(out / RUNS, config) for path, config in wanted.items()}
    configs = [config for path, config in wanted.items() if results[path].path == path]
    compare_data([r for path, r in results.items() if r.path != path], scope.data_root, quiet=True)
    if not quiet:
        _announce(chosen, configs, out)
    failed = run_jobs(
        configs,
        out / RUNS,
        jobs=jobs,
        device=device,
        data_root=scope.data_root,
        retry=retry,
        quiet=quiet,
        ray=ray,
    )
    finished = FinishedRuns(out / RUNS)
    for experiment in chosen:
        experiment.add_measurements(finished, device)
        tables = experiment.tables(finished)
        for table in tables:
            table.write(out / TABLES)
        experiment.draw(finished, out / FIGURES)
        if not quiet:
            for part in tables[0].parts(MAX_WIDTH):
                print_table(part.title, *part.texts())
    if what == ALL and any(finished.folders(wanted.values())):
        write_report(out, out / REPORT)
    _list_failures(failed, out)
    if not quiet:
        paths = [out / TABLES, out / FIGURES, *([out / REPORT] if what == ALL else [])]
        print(f"Written: {', '.join(str(path) for path in paths if path.exists())}")
    return failed


def available_features(root: Path) -> frozenset[tuple[str, str]]:
    """Task and features of the finished runs below a folder."""
    folders = (RunFolder(folder) for folder in folders_below(root))
    configs = (folder.read_config() for folder in folders if folder.finished)
    return frozenset((config.task, config.features) for config in configs)


def choose(known: Mapping[str, type[Experiment]], what: str, scope: Scope) -> list[Experiment]:
    """The experiments to run; an error if the selection is empty."""
    check_name("experiment", what, [*known, ALL])
    scope.check()
    chosen = [*known.values()] if what == ALL else [known[what]]
    if what != ALL and scope.methods and not chosen[0].methods:
        raise CanetError(f"'{what}' uses only CaNet: omit --methods")
    experiments = [made for experiment in chosen if (made := experiment(scope)).specs]
    if not experiments:
        tasks = dict.fromkeys(task for experiment in chosen for task in experiment.tasks)
        raise CanetError(
            f"'{what}' has none of the selected tasks: use --tasks with {', '.join(tasks)}"
        )
    return experiments


def jobs_of(experiments: Sequence[Experiment]) -> list[RunConfig]:
    """All jobs of the experiments, each once, sorted by task.

    A job without curves is omitted if the same job with curves is in the list.
    """
    jobs = {_key(config): config for e in experiments for config in e.configs()}
    needed = [c for c in jobs.values() if c.ood_curves or _key(with_curves(c)) not in jobs]
    return sorted(needed, key=lambda config: (config.task, config.protocol))


def _key(config: RunConfig) -> tuple[str, int]:
    return config.name, config.seed


def _announce(experiments: Sequence[Experiment], configs: Sequence[RunConfig], out: Path) -> None:
    """Print the number of runs, and the tasks that do not use the data of the paper."""
    specs = {s.label: s for experiment in experiments for s in experiment.specs}
    for spec in specs.values():
        if spec.features == "structural":
            print(
                f"{spec.task}: the features file is missing, so the runs use structural features "
                "and are not compared with published scores; see `canet datasets`"
            )
        elif spec.label != spec.task:
            print(f"{spec.label}, whose files are missing; see `canet datasets`")
    notes = {s.settings_note: s for e in experiments if e.chosen_methods for s in e.specs}
    for note in filter(None, notes):
        print(note)
    done = sum(job_folder(out / RUNS, config).finished for config in configs)
    print(f"{len(configs)} runs, {done} already finished")


def _list_failures(failed: Sequence[FailedJob], out: Path) -> None:
    """Print each failed job with the last lines of its error to standard error."""
    for job in failed:
        config = job.config
        path = job_folder(out / RUNS, config).path
        print(
            f"failed: {config.task} {config.method}-{config.backbone}, data seed "
            f"{config.data_seed}, seed {config.seed} ({path})",
            file=sys.stderr,
        )
        for line in job.lines:
            print(f"    {line}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} runs failed; use --retry to run them again", file=sys.stderr)
