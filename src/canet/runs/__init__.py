"""Many runs, each trained once: in this process, in several, or on a Ray cluster.

A run's folder is named after its content: `done` marks a finished run, `failed.json` a failed one.
"""

from canet.runs.run import FailedJob, run_jobs
from canet.runs.worker import job_folder

__all__ = ["FailedJob", "job_folder", "run_jobs"]
