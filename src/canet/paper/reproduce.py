"""The paper again: run the jobs of an experiment, then make its tables and figures of the runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from canet.errors import CanetError, check_name
from canet.paper import Experiment, Finished, Scope
from canet.paper.finished import serving_folder, with_curves
from canet.paper.paper_report import write_report
from canet.runs import FailedJob, job_folder, run_jobs
from canet.runs.data import compare_data
from canet.store import RunConfig, RunFolder, unpack_archive
from canet.store.folders import folders_below
from canet.util.console import print_table

ALL = "all"
RUNS, TABLES, FIGURES, REPORT = "runs", "tables", "figures", "report.html"
MAX_WIDTH = 9
"""Columns of numbers that a printed table has at most; a file has them all."""


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
    """Run what is not finished yet, write tables and figures, and print the headline tables.

    Args:
        experiments: Those to choose from, by name.
        what: Name of an experiment, or `all`.
        out: Folder for runs, tables, figures and, with `all`, the report.
        scope: What of the experiment to run; all of it where None.
        jobs: Number of worker processes.
        device: `auto`, `cpu` or `cuda`.
        retry: Whether to run jobs again that failed before.
        archive: Runs that are unpacked into `out` first, and need not be made again.
        quiet: Whether to print nothing but failures.
        ray: Address of a Ray cluster that trains, or `auto`.

    Returns:
        The jobs that failed; tables have gaps in their place.
    """
    if archive:
        unpack_archive(archive, out / RUNS)
    scope = replace(scope or Scope(), available_features=available_features(out / RUNS))
    chosen = choose(experiments, what, scope)
    wanted = {job_folder(out / RUNS, config).path: config for config in jobs_of(chosen)}
    serving = {path: serving_folder(out / RUNS, config) for path, config in wanted.items()}
    configs = [config for path, config in wanted.items() if serving[path].path == path]
    compare_data([s for path, s in serving.items() if s.path != path], scope.data_root, quiet=True)
    if not quiet:
        _announce(chosen, configs, out)
    failed = run_jobs(configs, out / RUNS, jobs, device, scope.data_root, retry, quiet, ray)
    finished = Finished(out / RUNS)
    for experiment in chosen:
        experiment.score_again(finished, device)
        tables = experiment.tables(finished)
        for table in tables:
            table.write(out / TABLES)
        experiment.draw(finished, out / FIGURES)
        if not quiet:
            for part in tables[0].parts(MAX_WIDTH):
                print_table(part.title, *part.texts())
    if what == ALL and any(finished.places(wanted.values())):
        write_report(out, out / REPORT)
    _list_failures(failed, out)
    if not quiet:
        places = [out / TABLES, out / FIGURES, *([out / REPORT] if what == ALL else [])]
        print(f"Written: {', '.join(str(place) for place in places if place.exists())}")
    return failed


def available_features(root: Path) -> frozenset[tuple[str, str]]:
    """Task and features of the finished runs below a folder."""
    places = (RunFolder(folder) for folder in folders_below(root))
    configs = (place.read_config() for place in places if place.finished)
    return frozenset((config.task, config.features) for config in configs)


def choose(known: Mapping[str, type[Experiment]], what: str, scope: Scope) -> list[Experiment]:
    """The experiments to run, or an error that says why there are none."""
    check_name("experiment", what, [*known, ALL])
    scope.check()
    chosen = [*known.values()] if what == ALL else [known[what]]
    if what != ALL and scope.methods and not chosen[0].methods:
        raise CanetError(f"'{what}' is about CaNet alone: leave out --methods")
    experiments = [made for experiment in chosen if (made := experiment(scope)).subjects]
    if not experiments:
        tasks = dict.fromkeys(task for experiment in chosen for task in experiment.tasks)
        raise CanetError(f"'{what}' has none of these tasks: choose from {', '.join(tasks)}")
    return experiments


def jobs_of(experiments: Sequence[Experiment]) -> list[RunConfig]:
    """Every job once, though experiments share some; those of one task stay together.

    Of a job with curves and the same without, the first serves both.
    """
    jobs = {_key(config): config for e in experiments for config in e.configs()}
    needed = [c for c in jobs.values() if c.ood_curves or _key(with_curves(c)) not in jobs]
    return sorted(needed, key=lambda config: (config.task, config.protocol))


def _key(config: RunConfig) -> tuple[str, int]:
    return config.name, config.seed


def _announce(experiments: Sequence[Experiment], configs: Sequence[RunConfig], out: Path) -> None:
    """How much there is to do, and on what it is done in place of the paper's data."""
    subjects = {s.label: s for experiment in experiments for s in experiment.subjects}
    for subject in subjects.values():
        if subject.features == "structural":
            print(
                f"{subject.task}: its features file is not here, so it runs with structural "
                "features, not compared with published numbers; see `canet datasets`"
            )
        elif subject.label != subject.task:
            print(f"{subject.label}, whose files are not here; see `canet datasets`")
    done = sum(job_folder(out / RUNS, config).finished for config in configs)
    print(f"{len(configs)} runs, {done} of them finished before")


def _list_failures(failed: Sequence[FailedJob], out: Path) -> None:
    """Each failed job with the last lines of its failure, on standard error."""
    for job in failed:
        config = job.config
        place = job_folder(out / RUNS, config).path
        print(
            f"failed: {config.task} {config.method}-{config.backbone}, data seed "
            f"{config.data_seed}, seed {config.seed} ({place})",
            file=sys.stderr,
        )
        for line in job.lines:
            print(f"    {line}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} runs failed; --retry runs them again", file=sys.stderr)
