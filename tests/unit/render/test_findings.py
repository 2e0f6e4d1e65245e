"""What `tracekit findings` prints says what is the case, what to do, and how sure that is."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tracekit.analysis import Analysis, Basis, Finding, Remark, Result, Rule, Severity
from tracekit.analysis.findings import Advice, gather, read_capture
from tracekit.analysis.savings import Budget, Ranked
from tracekit.render.findings import render
from tracekit.runs.run import Run

FOUND = Finding(
    "slow\x1b[2J",
    Severity.HIGH,
    "copies are | slow",
    "pin the memory in train.py(3): main",
    1_500,
    Basis.ESTIMATED,
    "bytes over the best rate",
    0.75,
    {"device_intervals": [4, 8, 15, 16, 23, 42], "host_intervals": []},
)
VAGUE = Finding("rule", Severity.INFO, "steps vary", "look at them")
COPIES = Analysis(
    "copies", "Copies", "?", "!", (), ("x",), 1, lambda _: Result(), (Rule("rule", "now", "so"),)
)
GOOD = "integrity: good\n"


def advice(*, marked: bool = True, integrity: str = "") -> Advice:
    ranked = (Ranked("copies", FOUND, 0.15), Ranked("copies", VAGUE, None))
    unseen = (("copies", "no shapes"),)
    return Advice(ranked, Budget(5, 10_000, marked=marked), 7, unseen, integrity=integrity)


def test_text_leads_with_the_saving_and_ends_with_what_was_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = render("r1", advice().findings, advice(integrity=GOOD), "table")
    assert text.splitlines() == [
        "run r1",
        "integrity: good",
        "Mean profiled step 10.00 µs (5 steps, warm-up included). 2",
        "findings, 7 rules checked. Savings overlap; don't sum them.",
        "",
        " 1. HIGH: saves 1.50 µs (15.0%), estimated",
        "    copies are | slow",
        "    → pin the memory in train.py(3): main",
        "    bytes over the best rate; confidence 75%;",
        "    device_intervals 4, 8, 15, 16, 23 and 1 more [copies:",
        "    slow\\x1b[2J]",
        "",
        " 2. INFO: savings not estimated",
        "    steps vary",
        "    → look at them",
        "    confidence 100% [copies: rule]",
        "",
        "Skipped, missing data:",
        "    - copies: no shapes",
    ]


def test_by_default_proof_is_left_out_and_missing_data_are_counted() -> None:
    unseen = (("copies", "no shapes"), ("copies", "no device"), ("gaps", "no device"))
    lacked = replace(advice(), unseen=unseen, capture=read_capture(CAPTURE))
    more = "tracekit findings r1 --more"
    text = render("r1", lacked.findings, lacked, "table", more=more)
    assert text.split("them.\n")[1].splitlines() == [
        "",
        " 1. HIGH: saves 1.50 µs (15.0%), estimated",
        "    copies are | slow",
        "    → pin the memory in train.py(3): main",
        "",
        " 2. INFO: savings not estimated",
        "    steps vary",
        "    → look at them",
        "",
        "2 analyses lack data: `tracekit findings r1 --more`",
        "What to record: steps (code: `--more`)",
    ]
    one = render("r1", [], advice(), "table", more=more)
    assert one.endswith("\n\n1 analysis lacks data: `tracekit findings r1 --more`\n")
    nothing = render("r1", [], replace(advice(), unseen=()), "table", more=more)
    assert nothing.endswith("rules checked.\n")


def test_what_failed_is_named_by_default() -> None:
    failed = replace(advice(), unseen=(("copies", "failed: no memory"),), complete=False)
    text = render("r1", [], replace(failed, capture=read_capture(CAPTURE)), "table", more="tracekit")
    skipped = "Skipped, missing data:\n    - copies: failed: no memory\n"
    assert text.endswith(f"\n\n{skipped}\nWhat to record: steps (code: `--more`)\n")


@pytest.mark.parametrize("output_format", ["json", "csv", "markdown"])
def test_other_formats_always_contain_everything(output_format: str) -> None:
    lacked = replace(advice(integrity=GOOD), capture=read_capture(CAPTURE))
    arguments = ("r1", lacked.findings, lacked, output_format)
    assert render(*arguments, more="tracekit findings r1 --more") == render(*arguments)


def test_savings_without_steps_are_per_capture() -> None:
    text = render("r1", [], advice(marked=False, integrity=GOOD), "table")
    assert "Mean capture 10.00 µs (5 captures). 0 findings, 7 rules checked. No steps are" in text


def test_what_several_analyses_lack_is_said_once_and_remarks_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tracekit.analysis.findings.budget", lambda _: advice().budget)
    notes = {"copies": ("no shapes", "no device"), "gaps": (Remark("nothing waits"), "no device")}
    results = tuple((replace(COPIES, name=name), Result(notes=said)) for name, said in notes.items())
    lacked = gather(Run(Path("/nothing")), results)
    text = render("r1", [], lacked, "table")
    assert text.splitlines()[-3:] == [
        "Skipped, missing data:",
        "    - copies, gaps: no device",
        "    - copies: no shapes",
    ]
    markdown = render("r1", [], lacked, "markdown")
    assert markdown.splitlines()[-2:] == ["- no device (copies, gaps)", "- no shapes (copies)"]


def test_no_line_ends_between_a_number_and_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in range(40, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = render("r1", advice().findings, advice(), "table").splitlines()
        assert not [line for line in lines if line.endswith("confidence 75")]
        assert "\N{NO-BREAK SPACE}" not in "".join(lines)


def test_one_step_has_no_mean() -> None:
    single = replace(advice(), budget=Budget(1, 10_000, marked=True))
    line = render("r1", [], single, "table").splitlines()[1]
    assert line == "Profiled step 10.00 µs. 0 findings, 7 rules checked."


@pytest.mark.parametrize(
    ("earlier", "says"), [(1_112, " after 1.11 µs of work from before the capture"), (1_111, "")]
)
def test_work_that_precedes_the_step_is_said(earlier: int, says: str) -> None:
    single = replace(advice(), budget=Budget(1, 10_000, marked=True, earlier_ns=earlier))
    line = render("r1", [], single, "table").splitlines()[1]
    assert line == f"Profiled step 10.00 µs{says}. 0 findings, 7 rules checked."


def test_json_holds_everything() -> None:
    found = json.loads(render("r1", advice().findings, advice(integrity=GOOD), "json"))
    assert (found["schema"], found["steps"], found["step_ns"], found["rules"]) == (
        "tracekit.findings/1",
        5,
        10_000,
        7,
    )
    assert found["notes"] == [{"analysis": "copies", "note": "no shapes"}]
    first, second = found["findings"]
    assert first["evidence"] == {"device_intervals": [4, 8, 15, 16, 23, 42], "host_intervals": []}
    assert (first["place"], first["share_of_step"], first["confidence"]) == (1, 0.15, 0.75)
    assert second["saving_ns_per_step"] is None


CAPTURE = Result(
    {
        "missing": pd.DataFrame({"missing": ["steps"], "answers": ["times"], "setting": ["`step()`"]}),
        "lines": pd.DataFrame({"line": ["with x:", "    y()"], "framework": ["torch.profiler"] * 2}),
    }
)


def test_what_to_record_ends_the_findings() -> None:
    asked = replace(advice(), capture=read_capture(CAPTURE))
    title = "What to record to answer more (torch.profiler):"
    assert render("r1", [], asked, "table").splitlines()[-5:] == [
        title,
        "    - steps: times → `step()`",
        "",
        "    with x:",
        "        y()",
    ]
    markdown = render("r1", [], asked, "markdown")
    assert markdown.endswith(f"{title}\n\n- steps: times → `step()`\n\n```\nwith x:\n    y()\n```\n")
    found = json.loads(render("r1", [], asked, "json"))["capture"]
    assert found == {
        "framework": "torch.profiler",
        "missing": [{"missing": "steps", "answers": "times", "setting": "`step()`"}],
        "lines": ["with x:", "    y()"],
    }
    assert json.loads(render("r1", [], advice(), "json"))["capture"] is None


def test_csv_is_one_line_each_and_markdown_cannot_be_broken() -> None:
    lines = list(csv.DictReader(io.StringIO(render("r1", advice().findings, advice(), "csv"))))
    assert [line["saving_ns_per_step"] for line in lines] == ["1500", ""]
    assert json.loads(lines[0]["evidence"])["device_intervals"][0] == 4
    markdown = render("r1", advice().findings, advice(integrity=GOOD), "markdown")
    assert "1. **copies are \\| slow** (saves 1.50 µs (15.0%), estimated)" in markdown
    assert "\x1b" not in markdown


def test_remedies_of_the_same_time_follow_the_advice() -> None:
    found = replace(FOUND, title="copies are slow", remedies=(replace(FOUND, title="copies wait"), VAGUE))
    ranked = (Ranked("copies", found, 0.15),)
    also = ["Also: copies wait (saves 1.50 µs). pin the memory", "Also: steps vary. look at them"]
    shown = {name: render("r1", ranked, advice(), name) for name in ("table", "markdown", "csv", "json")}
    for text in (shown["table"], shown["markdown"], shown["csv"]):
        plain = " ".join(text.replace("\\", "").split())
        assert plain.index("pin the memory") < plain.index(also[0]) < plain.index(also[1])
    (row,) = json.loads(shown["json"])["findings"]
    assert [remedy["code"] for remedy in row["remedies"]] == [FOUND.code, "rule"]
