"""The peers' own environments: `listed` reads who there is, `installed` makes and finds them."""

from benchmarks.peers.environments import Environment, environments

__all__ = ["Environment", "environments"]
