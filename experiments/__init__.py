"""Our own studies: run from a clone with `python -m experiments NAME`."""
