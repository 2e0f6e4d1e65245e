"""Findings of a run, computed in the background with progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import dash_mantine_components as dmc
from dash import Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from tracekit import analysis
from tracekit.analysis import Analysis, Result
from tracekit.analysis.findings import Advice, by_saving, gather, rank_finding
from tracekit.analysis.savings import Ranked, Verdict
from tracekit.analysis.verdict import INPUTS, MAX_VERDICT_FINDINGS, Evidence
from tracekit.errors import PluginError, TracekitError
from tracekit.experiments.trial_log import add_stored_trials
from tracekit.render.findings import describe_trials
from tracekit.runs.run import Run

from ...blocks import error_alert
from ...components.charts import aria
from ...components.elements import join_elements
from ...components.finding import Known, read_evidence, show_bottleneck, show_capture, show_finding
from ...components.text import block_title, human, sentence, with_code
from ...site import Context, Results, Site

FIRST = ("steps", "gpu_breakdown", "integrity", "overlap", "memory")
"""Fast analyses to run first, fastest first; the page shows their numbers early."""
FOR_VERDICT = tuple(dict.fromkeys(("steps", *INPUTS)))
"""What the verdict follows from, after the step time, which is shown beside it."""
_ORDER = tuple(dict.fromkeys((*FOR_VERDICT, *FIRST)))  # analyses to run before the others
_SERIAL = threading.Lock()  # run one analysis at a time; concurrent ones would slow each other down


def in_order() -> list[Analysis]:
    """Return all analyses in the order in which findings need them."""
    places = {name: place for place, name in enumerate(_ORDER)}
    return sorted(
        analysis.available(),
        key=lambda candidate: (places.get(candidate.name, len(_ORDER)), candidate.order, candidate.name),
    )


@dataclass
class FindingsJob:
    """Progress and result of the findings of a run, whose analyses are run by a thread."""

    run: Run
    results: Results
    title: str = ""  # of the running analysis; empty before the first
    done: int = 0
    total: int = 1
    found: tuple[Ranked, ...] = ()  # in the order in which the analyses ended
    evidence: Evidence = field(default_factory=Evidence)  # what the verdict follows from, so far
    advice: Advice | None = None  # None until finished or if it failed
    error: str = ""
    judged: threading.Event = field(default_factory=threading.Event)  # the verdict is known, or never will be
    finished: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        """Run every analysis and rank the findings, unless that is known from before."""
        try:
            self.advice = self.results.advise(self.run, lambda: gather(self.run, self._each()))
        except Exception as error:  # shown on the page
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.finished.set()
            self.judged.set()

    def _each(self) -> Iterator[tuple[Analysis, Result]]:
        chosen, unranked = in_order(), list[tuple[Analysis, Result]]()
        self.total = len(chosen)
        for self.done, candidate in enumerate(chosen):
            self.title = candidate.title
            with _SERIAL:
                try:
                    result = self.results.of(self.run, candidate.name)
                except PluginError as error:
                    result = Result(notes=(f"failed: {error.message}",))
            self.evidence.add(candidate.name, result)
            unranked.append((candidate, result))
            if self.evidence.complete:  # what findings are ranked against takes longer than the verdict
                self.judged.set()
                against = self.results.budget(self.run)
                self.found += tuple(
                    rank_finding(each, finding, against) for each, of in unranked for finding in of.findings
                )
                unranked.clear()
            yield candidate, result

    @property
    def verdict(self) -> Verdict | None:
        """What bounds the run by the analyses that have ended; None if those it follows from have not."""
        if self.advice is not None:
            return self.advice.verdict
        return self.evidence.verdict(by_saving(self.found)) if self.evidence.complete else None


def start_fast_analyses(results: Results, run: Run, before: str = "") -> None:
    """Run the fast analyses first, so that slow ones do not delay them.

    Args:
        results: Cache that receives the results.
        run: The run.
        before: Run only those before this one; default: all.
    """
    until = FIRST.index(before) if before else len(FIRST)
    for name in FIRST[:until]:
        with suppress(PluginError):  # the page shows the error
            results.of(run, name)


def find_job(context: Context) -> FindingsJob:
    """Return the findings of the selected run; start computing them if necessary.

    Raises:
        RunNotFoundError: There is no run.
        UnusableInputError: The device of the peaks is not listed.
    """
    run = context.run

    def start() -> FindingsJob:
        job = FindingsJob(run, context.results)
        threading.Thread(target=job.work, name="tracekit-advice", daemon=True).start()
        return job

    return context.results.get((run.path, FindingsJob, run.peaks), start)


PROGRESS_DELAY_S = 0.3
"""Seconds to wait before showing progress; small runs finish in that time."""
_TICK_MS = 1_000
_POLL_S = 0.5
"""Seconds that a poll waits for the end; less than a tick, as the next one drops what is not answered."""


def show_findings(context: Context) -> Component:
    """Show the findings, or the progress."""
    job = find_job(context)
    job.finished.wait(PROGRESS_DELAY_S)
    return html.Section(_content(context, job), id="advice", **aria(label="Findings", live="polite"))


def show_verdict(context: Context) -> Component:
    """Show what bounds the run, once it is known: what follows it on the page is shown with it."""
    job = find_job(context)
    job.judged.wait()
    shown: list[Component] = [
        html.P("Cannot tell what bounds this run: an analysis failed.", className="tk-answer")
    ]
    if job.verdict is not None:
        shown = show_bottleneck(job.verdict)
    return html.Section(shown, id="verdict", **aria(label="What bounds this run", live="polite"))


def wait_for_findings(context: Context) -> Sequence[Ranked]:
    """Wait for all analyses; return their findings, largest saving first."""
    job = find_job(context)
    job.finished.wait()
    advice = job.advice and add_stored_trials(job.advice, context.run, context.store)
    return advice.findings if advice else ()


def connect(site: Site) -> None:
    """Register the callback that updates the progress until the results replace it."""

    @site.app.callback(
        Output("advice", "children"),
        Output("advice-percent", "value"),
        Output("advice-progress", "children"),
        Output("advice-partial", "children"),
        Input("advice-tick", "n_intervals"),
        State("view", "data"),
        State("theme", "data"),
        State("advice-progress", "children"),
        prevent_initial_call=True,
    )
    def follow(_: int, view: dict[str, str] | None, theme: str, before: str) -> tuple[Any, Any, Any, Any]:
        if view is None:
            return no_update, no_update, no_update, no_update
        try:
            context = site.context_of(view, theme)
            job = find_job(context)
            if job.finished.wait(_POLL_S):
                return join_elements(_content(context, job)), no_update, no_update, no_update
        except TracekitError as error:
            return error_alert(error.message, error.hint), no_update, no_update, no_update
        progress = _progress_text(job)
        if progress == before:  # drawing the same cards again would cost the browser time
            return no_update, no_update, no_update, no_update
        cards = join_elements(_partial_cards(context, job))
        return no_update, round(100 * job.done / job.total), progress, cards


def _content(context: Context, job: FindingsJob) -> list[Component]:
    title = block_title("Findings")
    if not job.finished.is_set():
        label = aria(label="Analyses that are done")
        return [
            title,
            html.P(_progress_text(job), id="advice-progress", className="tk-dim"),
            dmc.Progress(id="advice-percent", value=round(100 * job.done / job.total), size="sm", **label),
            html.Div(_partial_cards(context, job), id="advice-partial", className="tk-carrying"),
            dcc.Interval(id="advice-tick", interval=_TICK_MS),
        ]
    if job.advice is None:
        return [title, error_alert("computing the findings failed", job.error)]
    advice = add_stored_trials(job.advice, context.run, context.store)
    return [title, *_show_findings(context, advice)]


def _partial_cards(context: Context, job: FindingsJob) -> list[Component]:
    """Show the most important findings so far in the places of the final ones."""
    findings, verdict = by_saving(job.found), job.verdict
    shown = verdict.findings if verdict else tuple(findings[:MAX_VERDICT_FINDINGS])
    return _cards(context, shown, _evidence(context, shown))


def _evidence(context: Context, findings: Sequence[Ranked]) -> Known:
    """Return the rows of evidence of findings; callbacks that ask for the same at once share one reading."""
    run, shown = context.run, [ranked.finding for ranked in findings]
    key = (run.path, read_evidence, run.peaks, *(repr(row) for row in shown))
    return context.results.get(key, lambda: read_evidence(run, shown))


def _cards(context: Context, findings: Sequence[Ranked], evidence: Known) -> list[Component]:
    return [
        show_finding(
            context,
            of.finding,
            share=of.share_of_step,
            analysis=of.analysis,
            rows_read=evidence,
            trials=describe_trials(of),
        )
        for of in findings
    ]


def _progress_text(job: FindingsJob) -> str:
    if not job.title:
        return "Starting"
    return f"{job.done} of {job.total} analyses done; running: {job.title}"


def _show_findings(context: Context, advice: Advice) -> list[Component]:
    """Show the findings that carry the verdict, and the others folded, one entry per rule."""
    first = advice.verdict.findings if advice.verdict else advice.findings[:MAX_VERDICT_FINDINGS]
    others = [finding for finding in advice.findings if finding not in first]
    lacks = show_capture(advice.capture)
    evidence = _evidence(context, advice.findings)
    return [
        html.P(summarize(advice), className="tk-dim tk-advice-summary"),
        html.Div(_cards(context, first, evidence), className="tk-carrying" if first else ""),
        *_fold_others(context, others, evidence, further=bool(first)),
        *_list_skipped(advice),
        *lacks,
    ]


def _fold_others(
    context: Context, others: list[Ranked], evidence: Known, *, further: bool
) -> list[Component]:
    """Fold findings; of each rule show the first, as the others say the same of something else.

    Without others above them, that is unless they are `further` ones, they are unfolded, as is one alone.
    """
    if not others:
        return []
    by_rule: dict[tuple[str, str], list[Ranked]] = {}
    for ranked in others:
        by_rule.setdefault((ranked.analysis, ranked.finding.code), []).append(ranked)
    entries: list[Component] = []
    for same in by_rule.values():
        first, *rest = _cards(context, same, evidence)
        entries.append(first)
        if rest:
            summary = html.Summary(f"{len(rest)} more of this rule")
            entries.append(html.Details([summary, *rest], className="tk-more"))
    what = f"{len(others)}{' more' * further} finding{'s' * (len(others) > 1)}"
    is_open = not further or len(by_rule) == 1
    return [html.Details([html.Summary(what), *entries], open=is_open, className="tk-more")]


def summarize(advice: Advice) -> str:
    """Summarize number of rules and step time."""
    against, count = advice.budget, len(advice.findings)
    unit = "profiled step" if against.marked else "capture"
    mean = f" (mean of {against.steps:,}, warm-up included)" if against.steps > 1 else ""
    of = f"savings are of a {unit} of {human(against.step_ns, 'ns')}{mean}"
    if not against.step_ns:
        return f"The run has no intervals, so none of the {advice.rules} rules could be checked."
    if not count:
        return f"{advice.rules} rules checked, no findings."
    overlap = " Savings overlap; don't sum them." if count > 1 else ""
    return f"Largest saving first; {advice.rules} rules checked; {of}.{overlap}"


def _list_skipped(advice: Advice) -> list[Component]:
    if not advice.lacking:
        return []
    lines = [
        html.Li([*with_code(sentence(note)), html.Span(f" ({', '.join(names)})", className="tk-dim")])
        for note, names in advice.lacking
    ]
    count = len({name for _, names in advice.lacking for name in names})
    what = f"Skipped: {count} {'analysis is' if count == 1 else 'analyses are'} missing data"
    shown = not advice.findings
    return [html.Details([html.Summary(what), html.Ul(lines)], open=shown, className="tk-skipped")]
