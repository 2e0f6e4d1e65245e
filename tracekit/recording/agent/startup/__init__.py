"""The folder that `collect` puts on PYTHONPATH: Python imports its `sitecustomize` before the program."""
