"""Ranges that launch many small kernels, for `zero_grad_gaps` and `small_kernels`."""
