"""Graph stores: graphs on disk that need not fit into memory."""

from canet.data.graph_store.index import is_graph_store
from canet.data.graph_store.store import GraphStore
from canet.data.graph_store.writer import GraphStoreWriter

__all__ = ["GraphStore", "GraphStoreWriter", "is_graph_store"]
