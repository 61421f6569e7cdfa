"""Run folders, model folders and archives: JSON and safetensors files with checksums."""

from canet.store.archive import open_runs, unpack_archive, write_archive
from canet.store.config import RunConfig
from canet.store.result import RunResult
from canet.store.run_folder import RunFolder, find_runs

__all__ = [
    "RunConfig",
    "RunFolder",
    "RunResult",
    "find_runs",
    "open_runs",
    "unpack_archive",
    "write_archive",
]
