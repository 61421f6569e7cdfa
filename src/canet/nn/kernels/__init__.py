"""Triton kernels for NVIDIA GPUs. Each of them saves at least 5 % of the time of an epoch.

`canet.nn.operations` decides when they run.
"""
