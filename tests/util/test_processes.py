"""Worker processes are reused, replaced when one dies, and end with their parent."""

import os
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

from canet.util.processes import Processes
from tests.support.processes import alive, wait_until, write_pid_and_sleep

pytestmark = pytest.mark.slow


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def threads() -> int:
    import torch

    return torch.get_num_threads()


def test_a_process_has_one_thread_survives_errors_and_is_replaced_when_it_dies() -> None:
    with Processes(1) as pool:
        assert pool.submit(threads).result() == 1
        first = pool.submit(os.getpid).result()
        with pytest.raises(ValueError, match="four"):
            pool.submit(int, "four").result()
        assert pool.submit(os.getpid).result() == first != os.getpid()
        with pytest.raises(BrokenExecutor, match="SIGKILL"):
            pool.submit(die).result()
        last = pool.submit(os.getpid).result()
        assert last != first
    wait_until(lambda: not alive(last))


def test_closing_a_pool_kills_processes_with_running_tasks(tmp_path: Path) -> None:
    with Processes(1) as pool:
        pool.submit(write_pid_and_sleep, tmp_path / "pid")
        wait_until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(pid))


PARENT = """
import sys
from pathlib import Path
from canet.util.processes import Processes
from tests.support.processes import write_pid_and_sleep

if __name__ == "__main__":
    with Processes(1) as pool:
        pool.submit(write_pid_and_sleep, Path(sys.argv[1])).result()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_do_not_outlive_their_parent(number: int, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    command = [sys.executable, str(script), str(tmp_path / "pid")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as parent:
        wait_until((tmp_path / "pid").exists)
        parent.send_signal(number)
    worker = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(worker))
