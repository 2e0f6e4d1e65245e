"""The name that plug-ins import from here; it is in `components.charts`."""

from ..components.charts import chart

__all__ = ["chart"]
