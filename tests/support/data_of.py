"""The graph of a task as a PyG `Data` that a test may change."""

from torch_geometric.data import Data

from canet.data.task import ShiftTask


def data_of(task: ShiftTask) -> Data:
    return Data(**task.data.to_dict()).clone()
