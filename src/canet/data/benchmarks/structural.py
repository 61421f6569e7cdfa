"""Structural features: columns computed from the graph alone, if there is no features file.

Most columns are a spectral embedding: with $P = D^{-1/2} A D^{-1/2}$ of the undirected graph and
$V$ its leading singular vectors, the row of a node is its row of $P V$, scaled to length one. So it
describes the position of the node, but not its degree. The other columns are local: logarithms of
in- and out-degree, and their means over the neighbours one and two steps away, in and against the
direction of the edges.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from canet.data.benchmarks.dataset import Request
from canet.data.benchmarks.files import RawFiles
from canet.data.benchmarks.processed import Arrays, processed

READER_VERSION = 1  # version of the readers of Arxiv and Elliptic
VERSION = 1  # version of the structural features
NUM_COLUMNS = 128
NUM_LOCAL = 10
NUM_SPECTRAL = NUM_COLUMNS - NUM_LOCAL


def read_arrays(
    name: str,
    request: Request,
    raw: RawFiles,
    parse: Callable[[RawFiles], Arrays],
    in_distribution: Callable[[Arrays], np.ndarray],
) -> Arrays:
    """Return a parsed graph, or its processed copy, with original or structural features.

    `in_distribution` returns the mask $[N]$ of the nodes that exist at training time.
    """
    if request.features is None:
        return processed(name, f"{READER_VERSION} {raw.digest}", lambda: parse(raw))

    def build() -> Arrays:
        graph = parse(raw)
        known = in_distribution(graph) | (not request.inductive)
        x = structural_features(torch.from_numpy(graph["edge_index"]), torch.from_numpy(known))
        return graph | {"x": x.numpy()}

    identity = f"{READER_VERSION} {VERSION} {request.inductive} {raw.digest}"
    return processed(f"{name}-structural", identity, build)


def structural_features(edge_index: Tensor, known: Tensor) -> Tensor:
    """Return standardised features $[N, 128]$ of the nodes of a directed graph $[2, E]$.

    Rows of the `known` nodes (mask $[N]$), the singular vectors and the column statistics depend
    only on the subgraph of known nodes. Rows of the other nodes are computed from the whole graph;
    their spectral part from their edges to known nodes.
    """
    mask = known.numpy()
    among_known = mask[edge_index.numpy()].all(axis=0)
    inner = _adjacency(edge_index.numpy()[:, among_known], len(mask))
    vectors = np.zeros((len(mask), NUM_SPECTRAL))
    vectors[mask] = _singular_vectors(_normalised(inner)[mask][:, mask])
    x = np.hstack([_spectral(inner, vectors), _local(inner)])
    if not mask.all():
        whole = _adjacency(edge_index.numpy(), len(mask))
        x[~mask] = np.hstack([_spectral(whole, vectors), _local(whole)])[~mask]
    deviation = x[mask].std(axis=0)
    x = (x - x[mask].mean(axis=0)) / np.where(deviation > 1e-12, deviation, 1)
    return torch.from_numpy(x.astype(np.float32))


def _adjacency(edge_index: np.ndarray, n: int) -> sp.csr_array:
    """Return the adjacency matrix $[n, n]$ (source, target) without duplicate edges."""
    ones = np.ones(edge_index.shape[1])
    adjacency = sp.csr_array((ones, tuple(edge_index)), shape=(n, n))
    adjacency.data[:] = 1
    return adjacency


def _normalised(adjacency: sp.csr_array) -> sp.csr_array:
    """Return $D^{-1/2} A D^{-1/2}$ of the undirected graph; rows of isolated nodes are zero."""
    undirected = adjacency.maximum(adjacency.T).tocsr()
    degree = undirected.sum(axis=1)
    scale = sp.diags_array(1 / np.sqrt(np.where(degree > 0, degree, 1)))
    return (scale @ undirected @ scale).tocsr()


def _singular_vectors(matrix: sp.csr_array) -> np.ndarray:
    """Return the leading right singular vectors $[n, 118]$ with reproducible signs.

    Only one thread is used, because the last bits depend on the number of threads. If the graph has
    fewer nodes than vectors, the remaining columns are zero.
    """
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    rank = min(NUM_SPECTRAL, matrix.shape[0])
    with threadpool_limits(1):
        _, _, transposed = randomized_svd(matrix.astype(np.float32), rank, n_iter=4, random_state=0)
    largest = np.abs(transposed).argmax(axis=1)
    signs = np.sign(transposed[np.arange(rank), largest])
    return np.pad((transposed * signs[:, None]).T, ((0, 0), (0, NUM_SPECTRAL - rank)))


def _spectral(adjacency: sp.csr_array, vectors: np.ndarray) -> np.ndarray:
    """Return rows of $P V$ scaled to length one, $[n, 118]$; zero without edges to known nodes."""
    rows = _normalised(adjacency) @ vectors
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 1e-12, length, 1)


def _local(adjacency: sp.csr_array) -> np.ndarray:
    """Return log-degrees and their means over neighbours, $[n, 10]$."""
    out_degree, in_degree = adjacency.sum(axis=1), adjacency.sum(axis=0)
    columns = [np.log1p(np.stack([in_degree, out_degree], axis=1))]
    for neighbours, degree in ((adjacency.T.tocsr(), in_degree), (adjacency, out_degree)):
        mean = sp.diags_array(1 / np.where(degree > 0, degree, 1)) @ neighbours
        columns += [mean @ columns[0], mean @ (mean @ columns[0])]
    return np.hstack(columns)
