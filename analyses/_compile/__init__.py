"""Traces of torch.compile, for `compile`."""
