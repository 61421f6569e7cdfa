"""Talk to a measuring process: jobs in, one answer per job out, and why it ended where it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from signal import Signals
from typing import Any

from canet.errors import CanetError

Job = dict[str, Any]


def measure_jobs(jobs: list[Job], order: dict[str, Any]) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Each job with its result, in order, from one process.

    A job during which its process ends is told as `died`, and another process does the rest.
    """
    done = 0
    while done < len(jobs):
        with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
            with _worker(complaints) as process:
                try:
                    for answer in _answers(process, {**order, "jobs": jobs[done:]}):
                        yield jobs[done], answer
                        done += 1
                except BaseException:
                    process.kill()
                    raise
            if done < len(jobs):
                complaints.seek(0)
                yield jobs[done], {"died": _reason(process.returncode, complaints.read())}
                done += 1


def _worker(complaints: Any) -> subprocess.Popen[str]:
    """A process that can import what this one can."""
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", "canet.bench.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )


def _answers(process: subprocess.Popen[str], order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(order))
    process.stdin.close()
    for line in process.stdout:
        answer = json.loads(line)
        if "error" in answer:
            raise CanetError(answer["error"])
        yield answer


def _reason(code: int, complaints: str) -> str:
    if code < 0:
        return f"ended by {Signals(-code).name}"
    return complaints.strip().rpartition("\n")[2] or f"ended with code {code}"
