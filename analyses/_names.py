"""Names of kernels, as analyses use them: the rules are the core's, for comparisons need them too."""

from __future__ import annotations

from tracekit.kernel_names import family, uses_tensor_cores

__all__ = ["family", "uses_tensor_cores"]
