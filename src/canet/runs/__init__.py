"""Many jobs, each run once, by any number of processes and machines that share a folder.

A job is a `RunConfig`. Its folder is named after its content and tells all there is to know: `done`
marks a finished job, `failed.json` a failed one, `claims` who works on it.
"""

from canet.runs.run import FailedJob, run_jobs
from canet.runs.worker import job_folder

__all__ = ["FailedJob", "job_folder", "run_jobs"]
