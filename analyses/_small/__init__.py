"""Ranges that launch many tiny kernels: behind `zero_grad_gaps` and `small_kernels`."""
