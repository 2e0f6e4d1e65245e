# Recipes for development. `just test` runs the same tests as .ci/run.

python := ".venv/bin/python"

# List the recipes.
default:
    @just --list

# Make .venv and install tracekit with everything the tests need.
setup:
    test -x {{python}} || python3 -m venv .venv
    {{python}} -m pip install -c constraints.txt -e '.[torch,dashboard,dev]'

# The default tier of the tests: about 5 minutes on two quiet cores.
test *arguments:
    {{python}} -m pytest -n 2 {{arguments}}

# Both tiers: the default one, then, if it passes, the slow one.
test-all: test
    {{python}} -m pytest -n 2 -m slow

# Unit and contract tests only, stopping at the first failure.
test-fast *arguments:
    {{python}} -m pytest -x tests/unit tests/contracts {{arguments}}

# The slowest files, tests and fixtures, with their share. `just test-times -m slow` measures the slow tier.
test-times *arguments:
    {{python}} -m pytest -n 2 -p tests.times {{arguments}}

# Install the oldest and the newest allowed packages on every Python from 3.11, and try them.
installs:
    TRACEKIT_TEST_INSTALLS=1 {{python}} -m pytest -m slow tests/integration/test_installs.py

# Which planted defects the default tier notices: one after the other, in a copy. See `just mutants --help`.
mutants *arguments:
    {{python}} -m tests.mutants {{arguments}}

# Lines and branches of the collectors that tests run, also in child processes. See `just coverage-collectors --help`.
coverage-collectors *arguments:
    {{python}} -m tests.child_coverage {{arguments}}

# Sizes and imports of the sources; with COMMITs, a comparison of them.
house *commits:
    {{python}} -m tests.structure {{commits}}

# Browser tests of the dashboard.
test-browser *arguments:
    {{python}} -m pytest -n 2 tests/browser {{arguments}}

# Static checks of continuous integration.
lint: types
    {{python}} -m ruff check .
    {{python}} -m ruff format --check .

# Format the sources.
format:
    {{python}} -m ruff check --fix .
    {{python}} -m ruff format .

# Static types.
types:
    {{python}} -m mypy

# Compare tracekit with similar tools and write docs/benchmarks.md; needs an idle machine. See `just bench --help`.
bench *arguments:
    {{python}} -m benchmarks {{arguments}}

# Measure error rates of the verdicts of comparisons on simulated noise, also on machines that are not quiet.
bench-statistics *arguments:
    {{python}} -m benchmarks.statistics {{arguments}}

# Verdicts of `tracekit ab`, and the time to them, on processes that differ in nothing or by a known slowdown.
bench-ab *arguments:
    {{python}} -m benchmarks.ab_null {{arguments}}

# Measure how often `try` finds the change that a program needs; an idle machine for 40 minutes. See `--help`.
bench-try *arguments:
    {{python}} -m benchmarks.planted_changes {{arguments}}

# Try changes on built-in workloads: predicted and measured savings; an idle machine for 12 minutes. See `--help`.
bench-tried *arguments:
    {{python}} -m benchmarks.tried_workloads {{arguments}}

# Loads, layout shift and width of every page for TRACEs, drop to verdict, server memory, and frames of the timeline.
bench-pages *arguments:
    {{python}} -m benchmarks.browser.pages {{arguments}}
    {{python}} -m benchmarks.browser.frames

# Do eight tasks in the dashboard with GPU_TRACE BASE_TRACE JOB_FOLDER; prints actions and seconds.
bench-tasks *arguments:
    {{python}} -m benchmarks.browser.tasks {{arguments}}

# Grade how agents diagnose planted, recorded and healthy runs; without --model, by a scripted client.
evals *arguments:
    {{python}} -m evals {{arguments}}

# Check the performance limits of analyses, timeline, dashboard and large stores; needs an idle machine.
bench-limits:
    {{python}} -m benchmarks.analyses
    {{python}} -m benchmarks.timeline
    {{python}} -m benchmarks.dashboard
    {{python}} -m benchmarks.large_store

# Measure how the cost of imports and findings grows with streams, names, steps, modules and depth. See `--help`.
bench-shapes *arguments:
    {{python}} -m benchmarks.shapes {{arguments}}

# Test a reader (kineto, nsys or store) with damaged and hostile inputs. See `just fuzz --help`.
fuzz *arguments:
    {{python}} -m fuzz {{arguments}}

# Generate the pages of docs/ that are made of metadata: analyses, rules, commands, schema, peaks, keys.
docs:
    {{python}} -m docs.making.site

# Build the documentation site into site/; warnings are errors.
site:
    NO_MKDOCS_2_WARNING=1 {{python}} -m mkdocs build --strict

# Serve the documentation site with live reload.
site-serve *arguments:
    NO_MKDOCS_2_WARNING=1 {{python}} -m mkdocs serve {{arguments}}

# Take the screenshots of the dashboard for the documents.
screenshots:
    {{python}} -m docs.screenshots

# Run everything that continuous integration runs, in a separate environment.
ci:
    .ci/run
