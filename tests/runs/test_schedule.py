"""Which job comes next."""

from __future__ import annotations

from pathlib import Path

from canet.runs import job_folder
from canet.runs.schedule import Job, Schedule, label
from canet.training import RunConfig
from tests.finished import make_config, write_run
from tests.runs.test_claims import write_claim


def make_jobs(root: Path, *configs: RunConfig, at_once: int = 1) -> list[Job]:
    return [Job(config, config.name, job_folder(root, config), at_once) for config in configs]


def seeds(method: str, number: int = 2, data_seed: int = 0) -> list[RunConfig]:
    return [make_config(method=method, seed=i, data_seed=data_seed) for i in range(number)]


def test_jobs_start_in_the_order_given(tmp_path: Path) -> None:
    first, second = make_jobs(tmp_path, *seeds("erm"))[::-1]
    schedule = Schedule([first, second], quiet=True)
    assert [schedule.start(None) for _ in range(3)] == [[first], [second], []]


def test_worker_stays_with_its_trainer_then_with_its_task(tmp_path: Path) -> None:
    first, other_task, second, same_task = make_jobs(
        tmp_path, *seeds("erm", 1), *seeds("irm", 1, 7), *seeds("erm")[1:], *seeds("irm", 1)
    )
    schedule = Schedule([first, other_task, second, same_task], quiet=True)
    order = schedule.start(None)
    for _ in range(3):
        order += schedule.start(order[-1])
    assert order == [first, second, same_task, other_task]


def test_new_worker_starts_where_no_other_works(tmp_path: Path) -> None:
    erm, irm = make_jobs(tmp_path, *seeds("erm")), make_jobs(tmp_path, *seeds("irm"))
    schedule = Schedule([*erm, *irm], quiet=True)
    assert [schedule.start(None) for _ in range(3)] == [[erm[0]], [irm[0]], [erm[1]]]


def test_jobs_that_others_run_or_finish_are_passed_over(tmp_path: Path) -> None:
    claimed, finished, free = make_jobs(tmp_path, *seeds("erm", 3))
    schedule = Schedule([claimed, finished, free], quiet=True)
    write_claim(claimed.place.path)
    write_run(tmp_path, finished.config, {"ood/4": 50.0})
    assert schedule.start(None) == [free]
    schedule.stopped([free])
    assert schedule.start(None) == [free]
    assert schedule.start(None) == []
    assert not schedule.complete


def test_seeds_start_side_by_side_where_that_is_faster(tmp_path: Path) -> None:
    erm = make_jobs(tmp_path, *seeds("erm", 4), at_once=3)
    irm = make_jobs(tmp_path, *seeds("irm"))
    write_claim(erm[1].place.path)
    schedule = Schedule([erm[0], irm[0], *erm[1:], irm[1]], quiet=True)
    assert schedule.start(None) == [erm[0], erm[2], erm[3]]
    assert schedule.start(None) == [irm[0]]
    assert label(erm[2:]) == "synthetic erm-gcn seed 2, 3"


def test_seeds_whose_worker_died_start_alone(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path, *seeds("erm", 4), at_once=2)
    schedule = Schedule(jobs, quiet=True)
    schedule.stopped(schedule.start(None), died=True)
    assert [schedule.start(None) for _ in range(3)] == [[jobs[0]], [jobs[1]], jobs[2:]]


def test_finished_jobs_lose_the_claims_of_a_process_that_died_just_then(tmp_path: Path) -> None:
    (job,) = make_jobs(tmp_path, *seeds("erm", 1))
    write_run(tmp_path, job.config, {"ood/4": 50.0})
    claim = write_claim(job.place.path)
    assert Schedule([job], quiet=True).complete
    assert not claim.parent.exists()
