"""Utilities that are independent of graphs and models: files, locks, memory, seeds, signals."""
