"""Train many runs in this process, in several processes, or on a Ray cluster.

The name of a run folder contains a digest of its configuration. The file `done` marks a finished
run, `failed.json` a failed run.
"""

from canet.runs.run import FailedJob, run_jobs
from canet.runs.worker import job_folder

__all__ = ["FailedJob", "job_folder", "run_jobs"]
