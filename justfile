# Recipes for people. `just test` runs the command that the README names and that .ci/run runs.

python := ".venv/bin/python"

# List the recipes.
default:
    @just --list

# Make .venv and install tracekit with everything the tests need.
setup:
    test -x {{python}} || python3 -m venv .venv
    {{python}} -m pip install -c constraints.txt -e '.[torch,dashboard,dev]'

# The default tier of the tests: under 8 minutes on two cores.
test *arguments:
    {{python}} -m pytest -n 2 {{arguments}}

# Both tiers: the default one, and if it passes the exhaustive variants.
test-all: test
    {{python}} -m pytest -n 2 -m slow

# Unit tests and contracts only, stopping at the first failure.
test-fast *arguments:
    {{python}} -m pytest -x tests/unit tests/contracts {{arguments}}

# The slowest files, tests and fixtures, with their share. `just test-times -m slow` measures the slow tier.
test-times *arguments:
    {{python}} -m pytest -n 2 -p tests.times {{arguments}}

# Which planted defects the default tier notices: one after the other, in a copy. See `just mutants --help`.
mutants *arguments:
    {{python}} -m tests.mutants {{arguments}}

# The dashboard in a real browser.
test-browser *arguments:
    {{python}} -m pytest -n 2 tests/browser {{arguments}}

# What continuous integration checks besides the tests.
lint: types
    {{python}} -m ruff check .
    {{python}} -m ruff format --check .

# Rewrite the sources in the common format.
format:
    {{python}} -m ruff check --fix .
    {{python}} -m ruff format .

# Static types.
types:
    {{python}} -m mypy

# Measure tracekit beside its peers and write docs/benchmarks.md; needs a quiet machine. See `just bench --help`.
bench *arguments:
    {{python}} -m benchmarks {{arguments}}

# How often the verdicts of comparisons are wrong, on simulated noise.
bench-statistics *arguments:
    {{python}} -m benchmarks.statistics {{arguments}}

# The limits that analyses, the timeline and the dashboard keep; needs a quiet machine.
bench-limits:
    {{python}} -m benchmarks.analyses
    {{python}} -m benchmarks.timeline
    {{python}} -m benchmarks.dashboard

# Throw damaged and hostile inputs at a reader: kineto, nsys or store. See `just fuzz --help`.
fuzz *arguments:
    {{python}} -m fuzz {{arguments}}

# Write the pages that come from metadata.
docs:
    {{python}} -c 'from tracekit.cli.main import main; main()' analyze --list --format markdown > docs/analyses.md

# Build the documentation site into site/, without a warning.
site:
    NO_MKDOCS_2_WARNING=1 {{python}} -m mkdocs build --strict

# Show the documentation site while it is written.
site-serve *arguments:
    NO_MKDOCS_2_WARNING=1 {{python}} -m mkdocs serve {{arguments}}

# Take the pictures of the dashboard that the documents show.
screenshots:
    {{python}} -m docs.screenshots

# Everything continuous integration runs, in an environment of its own.
ci:
    .ci/run
