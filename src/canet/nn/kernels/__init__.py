"""Kernels in Triton for NVIDIA GPUs, each kept because it saves at least 5 % of an epoch.

`canet.nn.operations` decides where they run.
"""
