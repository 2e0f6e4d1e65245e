"""Workloads with models of other libraries, made from their configurations with random weights.

`providers` registers them if the library is installed. Listing or naming one imports the library, so that
import errors are reported before anything runs.
"""
