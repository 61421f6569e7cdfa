"""Run folders: the files of one run.

config.json             task, method, settings and seeds; a digest of the data; version of canet
metrics.json            loss and scores of every epoch
weights.safetensors     parameters at the selected epoch
result.json             scores, selection rule, timing, versions
done                    the record with the SHA-256 of every file; written last
checkpoint-*            the state of an unfinished run, to resume it

A checkpoint is named `checkpoint-EPOCH-DIGEST.safetensors`. The digest depends on its content and
on config.json, so no other run can use it. The last two checkpoints are kept: if the last one does
not match its digest, the run resumes from the one before.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import load
from torch import Tensor, nn

from canet._version import __version__
from canet.data.digest import DataDigest
from canet.errors import CanetError, warn_user
from canet.store.checksums import ChecksummedFolder, read_file
from canet.store.config import RunConfig, RunStart
from canet.store.result import RunResult
from canet.store.tensors import pack
from canet.util.files import DONE, WriteError, digest_of, write_bytes, write_json
from canet.util.locks import exclusive_lock
from canet.util.schema import checksum_mismatch

CONFIG, METRICS, RESULT = "config.json", "metrics.json", "result.json"
WEIGHTS, MARKER = "weights.safetensors", DONE
CHECKPOINT = re.compile(r"checkpoint-(\d+)-([0-9a-f]{16})\.safetensors")
MAX_CHECKPOINTS = 2
NAME, SEED = re.compile(r".+-.+-.+-[0-9a-f]{8}"), re.compile(r"seed-\d+")
"""Default names of the two folders of a run."""


class RunFolder(ChecksummedFolder):
    """Reads and writes the files of one run."""

    RECORD = MARKER

    @property
    def has_metrics(self) -> bool:
        """Whether the folder contains the curves; most runs of an archive do not."""
        return (self.path / METRICS).exists()

    @property
    def checkpoints(self) -> list[Path]:
        """Checkpoints of an unfinished run, the last epoch first."""
        found = {path: CHECKPOINT.fullmatch(path.name) for path in self.path.glob("checkpoint-*")}
        epochs = {path: int(match[1]) for path, match in found.items() if match}
        return sorted(epochs, key=lambda path: (-epochs[path], path.name))

    def begin(self, config: RunConfig, data: DataDigest | None = None) -> None:
        """Write config.json into a new folder, or check that the folder contains the same run."""
        try:
            if not (self.path / CONFIG).exists():
                write_json(self.path / CONFIG, asdict(RunStart(config, data, __version__)))
        except WriteError:
            raise
        except OSError as error:
            raise CanetError(
                f"cannot write to '{self.path}' ({error.strerror}): choose another folder"
            ) from error
        if self.read_config() != config:
            raise CanetError(f"'{self.path}' has a run with other settings: choose another folder")
        if data is not None:
            self.check_data(data)
        if self.finished:
            self._remove_checkpoints()

    def check_data(self, data: DataDigest) -> None:
        """Reject other data than the data of the run; warn if the comparison is not possible."""
        start = self.read_start()
        if start.data is None:
            warn_user("some runs have no digest of their data, so the data cannot be compared")
            return
        part = start.data.differs_in(data)
        if part == "last bits":
            warn_user("features differ from those of some runs by rounding errors")
        elif part is not None:
            other = "another graph" if part == "graph" else f"other {part}"
            raise CanetError(
                f"the run in '{self.path}' was trained on other data ({other}): use the same data, "
                "or choose another folder"
            )
        if start.canet != __version__:
            warn_user(
                f"some runs were started by canet {start.canet}, but this is canet {__version__}: "
                "new results may differ from theirs"
            )

    def finish(
        self, weights: Mapping[str, Tensor], metrics: Mapping[str, list[float]], result: RunResult
    ) -> None:
        """Write the result and then the record, unless another process has done so."""
        with exclusive_lock(self.path, quiet=True):
            if not self.finished:
                files = {
                    WEIGHTS: write_bytes(self.path / WEIGHTS, pack(weights)),
                    METRICS: write_json(self.path / METRICS, metrics),
                    RESULT: write_json(self.path / RESULT, asdict(result)),
                    CONFIG: digest_of(read_file(self.path / CONFIG)),
                }
                self.write_record(files)
        self._remove_checkpoints()

    def write_finished(self, files: Mapping[str, bytes]) -> None:
        """Write the files of a run that finished in another folder, and then the record."""
        with exclusive_lock(self.path, quiet=True):
            if not self.finished:
                self.write_record({n: write_bytes(self.path / n, files[n]) for n in files})

    def add_json(self, name: str, content: object) -> None:
        """Add a JSON file that was computed from a finished run to its folder."""
        self._add(name, write_json(self.path / name, content))

    def add_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Add tensors that were computed from a finished run to its folder."""
        self._add(name, write_bytes(self.path / name, pack(tensors)))

    def read_start(self) -> RunStart:
        """Read config.json; raise an error if the folder has the name of another run."""
        start = self.read_as(RunStart, CONFIG)
        check_folder(self.path, start.config)
        return start

    def read_config(self) -> RunConfig:
        return self.read_start().config

    def read_result(self) -> RunResult:
        return self.read_as(RunResult, RESULT)

    def read_metrics(self) -> dict[str, list[float]]:
        return self.read_as(dict[str, list[float]], METRICS)

    def read_weights(self) -> dict[str, Tensor]:
        return self.read_tensors(WEIGHTS)

    def load_weights(self, module: nn.Module) -> None:
        """Load the parameters of the selected epoch into `module`."""
        try:
            module.load_state_dict(self.read_weights())
        except RuntimeError as error:
            raise CanetError(
                f"'{self.path / WEIGHTS}' does not match the model: use the settings of the run"
            ) from error

    def save_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, and remove all but the last two."""
        content = pack(tensors)
        digest = _checkpoint_digest(self.path, content)
        name = f"checkpoint-{int(tensors['epoch'])}-{digest}.safetensors"
        write_bytes(self.path / name, content)
        for old in self.checkpoints[MAX_CHECKPOINTS:]:
            old.unlink(missing_ok=True)

    def _remove_checkpoints(self) -> None:
        for path in self.checkpoints:
            path.unlink(missing_ok=True)

    def _add(self, name: str, digest: str) -> None:
        with exclusive_lock(self.path, quiet=True):
            self.write_record(self.files | {name: digest})


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint; verify the digest in its name."""
    match, content = CHECKPOINT.fullmatch(path.name), read_file(path)
    if not match or _checkpoint_digest(path.parent, content) != match[2]:
        raise checksum_mismatch(path)
    return load(content)


def _checkpoint_digest(folder: Path, content: bytes) -> str:
    return digest_of(read_file(folder / CONFIG) + content)[:16]


def check_folder(path: Path, config: RunConfig) -> None:
    """Reject a folder with the name `NAME/seed-S` of another run."""
    name, seed = path.absolute().parts[-2:]
    run = config.name, f"seed-{config.seed}"
    if NAME.fullmatch(name) and SEED.fullmatch(seed) and (name, seed) != run:
        raise CanetError(
            f"'{path}' contains the run {'/'.join(run)}, because it was moved or written by "
            "another version of canet: move it back, or train the run again"
        )


def find_runs(path: Path) -> list[RunFolder]:
    """Find all finished runs in `path` and its subfolders, including links, sorted by name."""
    found = [RunFolder(f) for f in folders_below(path) if (f / MARKER).is_file()]
    if not found:
        raise CanetError(
            f"there is no finished run in '{path}': pass the folder that canet train --out wrote"
        )
    return found


def _warn(error: OSError) -> None:
    warn_user(
        f"cannot read the folder '{error.filename}' ({error.strerror}): its runs are left out"
    )


def folders_below(root: Path, unreadable: Callable[[OSError], None] = _warn) -> Iterator[Path]:
    """Yield `root` and all folders below it, sorted by name.

    Links are followed, each folder is yielded once, and hidden folders are left out. Nothing is
    yielded if `root` is a file or missing. `unreadable` is called for a folder that cannot be read.
    """

    def report(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            unreadable(error)

    seen = set()
    for path, names, _ in os.walk(root, onerror=report, followlinks=True):
        target = os.path.realpath(path)
        if target in seen:
            names.clear()
            continue
        seen.add(target)
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield Path(path)
