"""Files, locks, memory, seeds, signals, progress: what knows nothing about graphs or models."""
