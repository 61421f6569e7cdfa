"""The job runner: worker processes or a Ray cluster, which share one value and write files."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import AbstractContextManager
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Protocol, TypeVar

from joblib import effective_n_jobs

from canet.errors import CanetError, InputError
from canet.util.files import DONE, write_bytes
from canet.util.locks import exclusive_lock
from canet.util.processes import Processes, worker_exit_reason

Job = TypeVar("Job")
Shared = TypeVar("Shared")
T = TypeVar("T")
Files = dict[str, bytes]  # path below the folder of all jobs → content


class WorkerDied(CanetError):
    """The process or machine of a job died twice."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"a worker process died twice ({reason}): use fewer jobs at a time if memory is short, "
            "and run the same command again to resume"
        )


class Pool(AbstractContextManager["Pool"], Protocol):
    """Calls functions in other processes, `size` at a time.

    If the process or machine of a function dies, its future raises a `BrokenExecutor`. If `remote`,
    functions may run on another machine, which cannot read the files of this machine.
    """

    size: int
    remote: bool

    def share(self, value: T) -> Callable[[], T]:
        """Return a function that returns a copy of the value; each worker gets it only once."""

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]: ...


def open_pool(jobs: int, ray: str | None = None, device: str = "auto") -> Pool | None:
    """Return a pool of worker processes or of a Ray cluster; None if this process does the work.

    Args:
        jobs: Number of jobs that run at the same time; -1: one for each core of this machine. With
            1 and no cluster, no pool is needed.
        ray: Address of a Ray cluster, or `auto`; None for worker processes on this machine.
        device: `auto`, `cpu` or `cuda`; a cluster reserves a share of it for each job.
    """
    if not isinstance(jobs, Integral) or not (jobs > 0 or jobs == -1):
        raise InputError(f"the number of jobs is {jobs!r}: pass 1 or more, or -1 for all cores")
    if jobs == -1:
        jobs = 1 if ray else effective_n_jobs(-1)  # a cluster counts its own cores
    if ray is not None:
        from canet.util.ray import Cluster

        return Cluster(ray, jobs, device)
    return None if jobs == 1 else Processes(jobs)


def run_all(
    pool: Pool | None,
    function: Callable[[Shared, Job, Path], T],
    jobs: Iterable[Job],
    *,
    shared: Shared,
    root: Path,
) -> Iterator[tuple[Job, T | WorkerDied]]:
    """Return an iterator over each job with its result, in the order in which they end.

    A pool starts its first jobs now. A further job is taken only when the pool can start it, and
    while the caller waits for a result.

    If a worker dies, perhaps because of another job, its job is repeated after all others, when no
    other job runs. If its worker dies again, the result is a `WorkerDied`. Any other exception of a
    job is raised here.

    Args:
        pool: Processes or machines; None for this process.
        function: Called with the shared value, a job, and a folder for the files of the job. On
            another machine this is a temporary folder, whose files are then copied to `root`.
        shared: A value that all jobs need. Each worker keeps its copy from one job to the next.
        root: Folder for the files of all jobs.
    """
    if pool is None:
        return ((job, function(shared, job, root)) for job in jobs)
    value, waiting = pool.share(shared), iter(jobs)
    running: dict[Future[tuple[T, Files]], Job] = {}

    def start(job: Job) -> Future[tuple[T, Files]]:
        return pool.submit(_call, function, value, job, None if pool.remote else root)

    def start_next() -> None:
        for job in islice(waiting, pool.size - len(running)):
            running[start(job)] = job

    def finish(future: Future[tuple[T, Files]]) -> T:
        result, files = future.result()
        _write_files(files, root)
        return result

    def results() -> Iterator[tuple[Job, T | WorkerDied]]:
        repeated: list[Job] = []
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    result = finish(future)
                except BrokenExecutor:
                    repeated.append(job)
                else:
                    yield job, result
            start_next()
        for job in repeated:
            try:
                result = finish(start(job))
            except BrokenExecutor as error:
                yield job, WorkerDied(worker_exit_reason(error))
            else:
                yield job, result

    start_next()
    return results()


def _call(
    function: Callable[[Shared, Job, Path], T],
    shared: Callable[[], Shared],
    job: Job,
    root: Path | None,
) -> tuple[T, Files]:
    """Call a function in a worker; without a folder `root` on this machine, return its files."""
    if root is not None:
        return function(shared(), job, root), {}
    with tempfile.TemporaryDirectory(prefix="canet-") as name:
        folder = Path(name)
        result = function(shared(), job, folder)
        paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        visible = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
        return result, {str(path): (folder / path).read_bytes() for path in visible}


def _write_files(files: Files, root: Path) -> None:
    """Write the files of other machines, `done` last; a folder that has it is complete."""
    folders: dict[Path, dict[str, bytes]] = {}
    for name, content in files.items():
        path = root / name
        folders.setdefault(path.parent, {})[path.name] = content
    for folder, contents in folders.items():
        with exclusive_lock(folder, quiet=True):
            if not (folder / DONE).exists():
                for name in sorted(contents, key=lambda name: name == DONE):
                    write_bytes(folder / name, contents[name])
