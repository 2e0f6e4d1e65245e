"""Exports of Nsight Systems that were recorded on a GPU; see `strip` for what was removed from them."""
