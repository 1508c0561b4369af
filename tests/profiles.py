"""Profiles of traces that a test wrote, answers that it gives in place of the analyses, and checks of the sums that
docs/concepts promises for any profile, to the nanosecond."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import step_parts
from tb_torchcompile_plugin.analysis.runtime.ledger import ledger
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.api import routes
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary, Graph
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile
from tb_torchcompile_plugin.profile.host.host_tree import host_tree
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_ns, step_time
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import answers_of
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from traces import Event, write_trace

SPAN = SpanFile("1", File("w.1.pt.trace.json", 0, 0, ""))


def profile_of(path: Path, data: CompileData | None = None) -> Profile:
    """The profile of a trace file."""
    return Profile(read_trace(str(path), workers=1), data, SPAN)


def profile_in(folder: Path) -> Profile:
    """The profile of the only trace in a folder."""
    (path,) = folder.glob("*.pt.trace.json*")
    return profile_of(path)


def profile_with(
    folder: Path, events: list[Event], data: CompileData | None = None, **header: Any
) -> Profile:
    """The profile of these events."""
    return profile_of(write_trace(folder, events, **header), data)


def spans_in(folder: Path) -> list[Profile]:
    """All spans of a logdir, with what was compiled, as a session opens them."""
    session = Session([("", str(folder))])
    profiles = spans_of(session)
    session.close()
    return profiles


def spans_of(session: Session) -> list[Profile]:
    return [
        session.profile(run.run, worker.worker, span.span)
        for run in session.runs().runs
        for worker in run.workers
        for span in worker.spans
    ]


def data_of(summary: CompileSummary) -> CompileData:
    """What one worker compiled."""
    return CompileData(summary, "summary", "")


def graphs(key_to_id: Mapping[str, str]) -> CompileData:
    """Compile data that tells of graphs, by key, and nothing else."""
    made = [Graph(key=CompileKey(compile_id=name), graph_key=key) for key, name in key_to_id.items()]
    return data_of(CompileSummary(graphs=made))


SPAN_QUESTIONS: dict[str, routes.Route[Any]] = {
    name: route
    for name, route in routes.ROUTES.items()
    if route.subject in (routes.SPAN, routes.SPAN_OR_WORKER, routes.TIMELINE)
    and all(one.optional for one in route.parameters)
}  # what a span alone is asked


WORKER_QUESTIONS: dict[str, Any] = {
    name: route.ask
    for name, route in routes.ROUTES.items()
    if route.subject in (routes.WORKER, routes.SPAN_OR_WORKER) and not route.parameters
}  # what compile data alone are asked


def ask(profile: Profile, question: str) -> Any:
    """The answer to one of SPAN_QUESTIONS."""
    route = SPAN_QUESTIONS[question]
    return route.ask(profile.of(Timeline)) if route.subject is routes.TIMELINE else profile.of(route.ask)


def key_of(question: Callable[..., object]) -> tuple[object, ...]:
    """The key of the answer to a question without parameters."""
    return question, (), ()


def answered(profile: Profile, question: Callable[[Profile], object], answer: object) -> Profile:
    """The profile as if it had been asked this and had answered so."""
    answers_of(profile).get(key_of(question), lambda: answer)
    return profile


SPLITS = ("operators_by_shape", "operators_by_call_site", "operators_by_label", "operators_by_compilation")


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def total(values: Iterable[float]) -> int:
    return sum(map(ns, values))


def total_by(rows: Iterable[Any], key: str, value: str) -> Counter[Any]:
    sums: Counter[Any] = Counter()
    for row in rows:
        sums[getattr(row, key)] += ns(getattr(row, value))
    return +sums


def gpu_ns(profile: Profile) -> Counter[int]:
    """Summed time of each device's events, without those whose times cannot be true."""
    trace, sums = profile.trace, Counter[int]()
    events = trace.select(cat=("kernel", "gpu_memcpy", "gpu_memset")).tolist()
    for row in {*events}.difference(trace.implausible().tolist()):
        pid = trace.tracks[trace.track[row]].pid
        known = int(trace.device[row])
        sums[known if known >= 0 else pid if isinstance(pid, int) else -1] += int(trace.dur[row])
    return +sums


def a_devices_time_is_whole(profile: Profile) -> None:
    span = ask(profile, "span")
    for row in span.gpu:
        parts = (row.compute_us, row.exposed_communication_us, row.exposed_memory_us)
        assert total(parts) == ns(row.busy_us) and total((row.busy_us, row.idle_us)) == ns(row.span_us)
    walls = profile.of(step_ns)
    assert all((parts.sum(axis=0) == walls).all() for parts in profile.of(step_parts).values())


def kernels_and_categories_are_all_gpu_events(profile: Profile) -> None:
    span, kernels = ask(profile, "span"), ask(profile, "kernels")
    on_gpu = [row for row in span.kernel_categories if row.device != "cpu"]
    assert total_by(on_gpu, "device", "time_us") == gpu_ns(profile)
    rows = [row for row in kernels.rows if row.device != "cpu"]
    assert total_by(rows, "device", "time_us") == gpu_ns(profile)
    assert total_by(rows, "category", "time_us") == total_by(on_gpu, "category", "time_us")


def the_parts_of_a_step_sum_to_it(profile: Profile) -> None:
    report, scenario = ask(profile, "step"), ask(profile, "what_if")
    for step in filter(None, [*report.steps, report.window]):
        assert total(part.time_us for part in step.parts) == ns(step.wall_us)
    time = ask(profile, "span").step_time
    parts = [part.time_us for part in report.mean_parts if part.kind != "profiler"]
    if parts:
        assert isclose(sum(parts), time.step_us, rel_tol=1e-9) and min(parts) >= 0
        assert isclose(sum(part.time_us for part in report.mean_parts), time.profiled_us, rel_tol=1e-9)
    used = ask(profile, "gpu_utilization")
    if used.mean:
        whole = max(time.step_us, used.mean.busy_us)  # in whole ns
        assert isclose(used.mean.busy_us + used.mean.idle_us, whole, rel_tol=1e-9, abs_tol=0.001)
    reasons = [(row.device, row.cause, row.name, row.file, row.line) for row in used.idle_reasons]
    assert len({*reasons}) == len(reasons)
    rows = [row for row in ask(profile, "findings").findings if row.predicted]
    replayed = [*(row for row in rows if row.fix), *scenario.fixes]
    assert {row.predicted.step_us for row in replayed} <= {time.step_us}
    # A gain that two runs measured starts from the mean of the same steps, which is rounded elsewhere.
    assert all(isclose(row.predicted.step_us, time.step_us, rel_tol=1e-12) for row in rows)
    assert scenario.now is None or _alike(scenario.now.step_us, time.step_us)
    for picture in filter(None, (scenario.now, scenario.after)):
        assert _alike(sum(part.time_us for part in picture.host), picture.step_us)
        for gpu in picture.gpus:
            assert _alike(gpu.idle_us, max(picture.step_us - gpu.busy_us, 0))


def the_ledger_sums_to_the_step(profile: Profile) -> None:
    """Also its sites: each row is in one of them."""
    step_us, found = profile.of(step_time).step_us, profile.of(ledger)
    for sums in (
        sum(row.time_us for row in found.rows),
        sum(row.host_us + row.gpu_us for row in found.sites),
    ):
        assert isclose(sums, step_us, rel_tol=1e-9)
    assert all(row.time_us >= 0 for row in found.rows)


def _alike(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)


def own_times_sum_to_the_outermost_slices(profile: Profile) -> None:
    trace, tree = profile.trace, profile.of(host_tree)
    outer = tree.index[tree.parent < 0]
    assert int(tree.self_ns.sum()) == int(trace.dur[outer].sum())
    assert (trace.self_ns >= 0).all()


def operators_split_into_their_parts(profile: Profile) -> None:
    rows = ask(profile, "operators").rows
    for split in SPLITS:
        parts = ask(profile, split).rows
        for value in ("self_host_us", "host_us"):
            assert total_by(parts, "name", value) == total_by(rows, "name", value)
        assert sum(part.calls for part in parts) == sum(row.calls for row in rows)


IDENTITIES: tuple[Callable[[Profile], None], ...] = (
    a_devices_time_is_whole,
    kernels_and_categories_are_all_gpu_events,
    the_parts_of_a_step_sum_to_it,
    the_ledger_sums_to_the_step,
    own_times_sum_to_the_outermost_slices,
    operators_split_into_their_parts,
)


class GraphProgram(NamedTuple):
    """spans: in order of time. truth: by span, how often torch warmed up, recorded and replayed."""

    name: str
    spans: list[Profile]
    truth: list[Counter[str]]
    measured: dict[str, Any]


def graph_programs(folder: Path) -> dict[str, GraphProgram]:
    """By name."""
    rows = json.loads((folder / "measured.json").read_text())["programs"]
    planted = [row for row in rows if not row["mended"]]
    return {row["name"]: _program(folder / row["name"], row) for row in planted}


def _program(folder: Path, row: dict[str, Any]) -> GraphProgram:
    spans = spans_in(folder)
    return GraphProgram(
        row["name"], spans, [counted(row[one]) for one in ("life", "steady")][-len(spans) :], row
    )


def counted(truth: dict[str, int]) -> Counter[str]:
    """Of all functions together: "0/0/0/replayed" is what one of compile id 0/0 did."""
    counts = Counter[str]()
    for key, times in truth.items():
        counts[key.rpartition("/")[2]] += times
    return counts
