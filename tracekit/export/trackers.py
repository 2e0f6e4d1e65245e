"""Log a run where experiments are tracked: TensorBoard, MLflow, and Weights & Biases.

Numbers are scalars below `tracekit/` with their unit at the end of the name, findings a table, the verdict a
text. The package of a tracker is imported when it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError, UnusableInputError, clean
from tracekit.registry import import_extra
from tracekit.runs import metrics, step_times
from tracekit.runs.run import Run
from tracekit.runs.step_windows import END_NS, step_windows
from tracekit.schema import C

if TYPE_CHECKING:
    from tracekit.analysis import Analyze
    from tracekit.analysis.findings import Advice

PREFIX = "tracekit/"
PROJECT = "tracekit"
"""Project or experiment, if the tracker's own variables name none."""
_MAX_BATCH = 1_000  # maximum metrics that MLflow takes at once
_UNITS = {"ns": ("ms", 1e-6), "bytes": ("mib", 1 / (1 << 20))}
"""Unit of a scalar by that of a metric, with the factor."""


@dataclass(frozen=True)
class Row:
    """A row of the table of findings; savings overlap."""

    severity: str
    code: str
    title: str
    advice: str
    saving_ms_per_step: float | None
    share_of_step: float | None


@dataclass(frozen=True)
class Summary:
    """What is logged of a run."""

    run_id: str
    name: str  # its label, or else its id
    created_s: float  # when it was recorded, seconds since the epoch
    facts: Mapping[str, str]  # settings by name
    scalars: Mapping[str, float]  # numbers by name, with the unit at its end
    steps_ms: Mapping[int, float]  # time that each profiled step adds, of the slowest rank, by step
    verdict: str  # what bounds the run
    findings: tuple[Row, ...]  # findings, largest saving first

    def by_step(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the scalars of each step, with their prefix; those of the whole run belong to the last."""
        name = f"{PREFIX}profiled_step_ms"
        values = {step: {name: ms} for step, ms in sorted(self.steps_ms.items())} or {0: {}}
        last = max(values)
        values[last] |= {f"{PREFIX}{name}": value for name, value in self.scalars.items()}
        yield from values.items()


def summarize(run: Run, advice: Advice, *, by: Analyze) -> Summary:
    """Return what is logged of a run.

    Args:
        run: The run.
        advice: Its findings and verdict.
        by: What gives the result of `memory`, where the peaks were not measured beside the profile.
    """
    meta = run.meta
    workload, gpus = meta.workload or {}, meta.environment.get("gpus") or []
    facts = {
        "run_id": run.id,
        "workload": str(workload.get("name") or ""),
        "mode": str(workload.get("mode") or ""),
        "batch_size": str(workload.get("batch_size") or ""),
        "device": ", ".join(dict.fromkeys(str(gpu.get("name")) for gpu in gpus)),
        "torch": str(meta.environment.get("torch") or ""),
        "commit": meta.git.sha if meta.git else "",
        "ranks": str(len(run.ranks)),
        "integrity": advice.integrity.partition(": ")[2].strip(),
    }
    return Summary(
        run_id=run.id,
        name=clean(meta.label or run.id),
        created_s=datetime.fromisoformat(meta.created_at).timestamp(),
        facts={name: clean(text) for name, text in facts.items() if text},
        scalars=_measure(run, by) | _judge(advice),
        steps_ms=_time_steps(run),
        verdict=clean(advice.verdict.sentence if advice.verdict else "Cannot tell what bounds this run."),
        findings=_list_findings(advice),
    )


def _measure(run: Run, by: Analyze) -> dict[str, float]:
    """Return step times and peaks of memory."""
    values = metrics.of_run(run) | metrics.step_distribution(run)
    profiled = step_times.profiled_step_time(run)
    if profiled is not None:
        values["profiled_step_time"] = float(profiled.mean_ns)
    if metrics.DEVICE_PEAK not in values:
        values |= _find_peak(by(run, "memory").tables.get("summary"))
    scalars = {}
    for name, value in values.items():
        unit, factor = _UNITS[metrics.METRICS[name].unit if name in metrics.METRICS else "ns"]
        scalars[f"{name}_{unit}"] = value * factor
    return scalars


def _find_peak(summary: Any) -> dict[str, float]:
    """Return the peak of the device with most, as the profiler recorded it; nothing if it did not."""
    if summary is None:
        return {}
    of_devices = summary[(summary[C.DEVICE] >= 0) & (summary["totals"] == "recorded")]
    return {metrics.DEVICE_PEAK: float(of_devices["peak_allocated"].max())} if len(of_devices) else {}


def _judge(advice: Advice) -> dict[str, float]:
    """Return the parts of the verdict, the number of findings, and savings, as shares of the step."""
    values: dict[str, float] = {}
    for part in advice.verdict.parts if advice.verdict else ():
        name = f"part/{part.bound.value.replace(' ', '_')}_share"
        values[name] = values.get(name, 0.0) + part.share
    for severity in ("high", "warn"):
        values[f"findings_{severity}"] = float(
            sum(ranked.finding.severity == severity for ranked in advice.findings)
        )
    return values | {f"saving/{code}_share": share for code, share in advice.shares.items() if share}


def _time_steps(run: Run) -> dict[int, float]:
    windows = step_windows(run)
    added = (windows[END_NS] - windows[C.START_NS]).groupby(windows[C.STEP]).max()
    steps, times = added.index.tolist(), added.tolist()
    return {int(step): 1e-6 * ns for step, ns in zip(steps, times, strict=True) if ns > 0}


def _list_findings(advice: Advice) -> tuple[Row, ...]:
    return tuple(
        Row(
            severity=str(ranked.finding.severity),
            code=ranked.finding.code,
            title=clean(ranked.finding.title),
            advice=clean(ranked.finding.advice),
            saving_ms_per_step=None
            if ranked.finding.saving_ns_per_step is None
            else 1e-6 * ranked.finding.saving_ns_per_step,
            share_of_step=ranked.share_of_step,
        )
        for ranked in advice.findings
    )


def log_run(summary: Summary, *, to: str, folder: Path | None = None, overwrite: bool = False) -> str:
    """Log a run; returns the folder or the address where it is.

    Args:
        summary: What to log.
        to: `tensorboard`, `mlflow` or `wandb`.
        folder: Folder to write to, offline; by default the place of the tracker's own variables, for
            TensorBoard a folder named for the run.
        overwrite: Whether to replace what was logged of this run, which only TensorBoard needs.

    Raises:
        MissingDependencyError: The package of the tracker is not installed.
        UnusableInputError: It cannot log there.
    """
    try:
        if to == "tensorboard":
            place = folder or Path(f"{summary.run_id}-tensorboard")
            return _log_to_tensorboard(summary, place, overwrite=overwrite)
        return {"mlflow": _log_to_mlflow, "wandb": _log_to_wandb}[to](summary, folder)
    except TracekitError:
        raise
    except Exception as error:  # each package has errors of its own
        raise UnusableInputError(
            f"{to} cannot log the run: {type(error).__name__}: {error}",
            hint="set it up as its documentation says, or write to a folder with -o",
        ) from error


def _import(module: str, tracker: str) -> Any:
    return import_extra(module, f"exporting to {tracker} needs")


def _log_to_tensorboard(summary: Summary, folder: Path, *, overwrite: bool) -> str:
    """Add a file of events to a folder, which may have others: TensorBoard shows them as one run."""
    writers = _import("tensorboard.summary.writer.event_file_writer", "TensorBoard")
    events = _import("tensorboard.compat.proto.event_pb2", "TensorBoard")
    summaries = _import("tensorboard.compat.proto.summary_pb2", "TensorBoard")
    suffix = f".tracekit-{summary.run_id}"
    earlier = [path for path in folder.glob("events.out.tfevents.*") if path.name.endswith(suffix)]
    if earlier and not overwrite:
        raise UnusableInputError(
            f"{folder} already has run {summary.run_id}",
            hint="use --force to replace it, or choose another -o",
        )
    writer = writers.EventFileWriter(str(folder), filename_suffix=suffix)

    def add(step: int, *values: Any) -> None:
        shown = summaries.Summary(value=values)
        writer.add_event(events.Event(wall_time=summary.created_s, step=step, summary=shown))

    value = summaries.Summary.Value
    for step, scalars in summary.by_step():
        add(step, *(value(tag=tag, simple_value=number) for tag, number in scalars.items()))
    as_text = summaries.SummaryMetadata(plugin_data=summaries.SummaryMetadata.PluginData(plugin_name="text"))
    texts = {"verdict": summary.verdict, "findings": _write_markdown(summary)}
    for name, text in texts.items():
        tensor = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": 1}]}, "string_val": [text.encode()]}
        add(0, value(tag=f"{PREFIX}{name}", metadata=as_text, tensor=tensor))
    writer.close()
    for path in earlier:
        path.unlink()
    return str(folder)


def _write_markdown(summary: Summary) -> str:
    """Return the findings as a table in Markdown, in which names from a trace are text."""

    def cell(content: object) -> str:
        text = f"{content:.4g}" if isinstance(content, float) else str("" if content is None else content)
        for sign in "\\`*_[]<>|":
            text = text.replace(sign, f"&#{ord(sign)};")
        return text

    rows = [[field.name for field in fields(Row)], ["---"] * len(fields(Row))]
    rows += [[cell(content) for content in astuple(row)] for row in summary.findings]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _log_to_mlflow(summary: Summary, folder: Path | None) -> str:
    mlflow, entities = _import("mlflow", "MLflow"), _import("mlflow.entities", "MLflow")
    if folder is not None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions refuse folders without it
    client = mlflow.MlflowClient(tracking_uri=folder.absolute().as_uri() if folder else None)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    experiment = client.get_experiment_by_name(name)
    place = experiment.experiment_id if experiment else client.create_experiment(name)
    began_ms = round(1e3 * summary.created_s)
    run = client.create_run(place, start_time=began_ms, run_name=summary.name)
    identity = run.info.run_id
    logged = [
        entities.Metric(key, value, began_ms, step)
        for step, scalars in summary.by_step()
        for key, value in scalars.items()
    ]
    for start in range(0, len(logged), _MAX_BATCH):
        client.log_batch(identity, metrics=logged[start : start + _MAX_BATCH])
    client.log_batch(
        identity, params=[entities.Param(f"{PREFIX}{key}", text) for key, text in summary.facts.items()]
    )
    client.set_tag(identity, f"{PREFIX}verdict", summary.verdict)
    columns = zip(*map(astuple, summary.findings), strict=True)
    table = {field.name: [*values] for field, values in zip(fields(Row), columns, strict=False)}
    client.log_table(identity, table, f"{PREFIX}findings.json")
    client.set_terminated(identity, end_time=began_ms)
    return f"{client.tracking_uri}#/experiments/{place}/runs/{identity}"


def _log_to_wandb(summary: Summary, folder: Path | None) -> str:
    wandb = _import("wandb", "Weights & Biases")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)  # else wandb falls back to a temporary folder
    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        x_disable_meta=True,
    )
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=summary.name,
        job_type="profile",
        config=dict(summary.facts),
        dir=str(folder) if folder else None,
        mode="offline" if folder else None,
        reinit="create_new",  # a run of the program that calls this goes on
        settings=settings,
    )
    for step, scalars in summary.by_step():
        run.log(scalars, step=step)
    table = wandb.Table(
        columns=[field.name for field in fields(Row)], data=[[*astuple(row)] for row in summary.findings]
    )
    run.log({f"{PREFIX}findings": table})
    run.summary[f"{PREFIX}verdict"] = summary.verdict
    place = str(Path(run.dir).parent if run.offline else run.url)
    run.finish()
    return place
