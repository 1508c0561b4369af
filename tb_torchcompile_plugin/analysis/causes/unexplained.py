"""What large part of a step has no other cause?"""

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.cause import Cause
from tb_torchcompile_plugin.analysis.causes.context import SpanContext
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.analysis.formatting import duration, percent
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.ledger import KIND_WORDS, LedgerSite, calling_sites, ledger
from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.torch_names.kernels import short_kernel
from tb_torchcompile_plugin.torch_names.libraries import library_work
from tb_torchcompile_plugin.torch_names.operators import is_embedding_backward, is_foreach
from tb_torchcompile_plugin.torch_names.python_frames import frame_of
from tb_torchcompile_plugin.torch_names.slices import LOOKUPS

_SHAPES_SHOW = "A step needs this work. Operators shows the shapes, with record_shapes=True"
_MAX_SITES = 3  # large sites that are findings: the table has all of them
# Shares of a site that a fix must bring to be its explanation: as predicted, and at least. By eye on the recordings.
_EXPLAINED, _SURELY_EXPLAINED = 0.5, 0.25


class LargeSite(Cause):
    """A site of the [ledger](definitions.md#ledger) takes a share of the step, and no other finding explains it.

    The line, operator or position, with its kernels or functions (warning on the host; info where the time is that of
    kernels).
    """

    id = "large_site"
    panel = "step"
    section = "ledger"
    needs_all = True
    limits = ("site_percent",)

    def detect(self, context: SpanContext) -> Iterator[Finding]:
        sites = [
            site for site in context.profile.of(calling_sites) if site.site and _is_unexplained(context, site)
        ]
        for site in sites[:_MAX_SITES]:
            kind = site.kinds[0]
            # A step needs its kernels, on the CPU an operator, too, but not that the host is late with kernels.
            on_cpu, rows = context.profile.of(utilization) is None, context.profile.of(ledger).rows
            is_operator = kind == "eager_operators" and not site.file and on_cpu
            is_work = site.gpu_us > site.host_us or kind == "compiled_graph" or is_operator
            named = [name for row in rows if row.site == site.site for name in row.names]
            inside = next((name for name in named if short_kernel(name) not in site.site), "")
            is_position = site.site.startswith(("after ", "before "))
            title = f"Time {site.site}" if is_position else site.site
            what = f"{'mostly ' if site.kinds[1:] else ''}{KIND_WORDS.get(kind, f'{kind} kernels')}"
            yield self.finding(
                f"{title} takes {duration(site.time_us)}, {percent(site.step_percent)} of "
                f"{'the step' if context.steps else 'the span'}: {what}"
                f"{f', such as {short_kernel(inside)}' if inside else ''}",
                _next_step(context, site, is_work, named),
                {"site_us": site.time_us, "share_percent": site.step_percent},
                severity="info" if is_work and not _is_dense_update(context, site) else "warning",
                where=[site.site],
            )


def _is_unexplained(context: SpanContext, site: LedgerSite) -> bool:
    """Whether no other finding names a site, or surely brings the larger part of what it may bring.

    Less time of the host makes a step shorter only as far as its GPU idles. A gain of "up to" explains nothing: that
    nothing is compiled must not hide what the program does in addition.
    """
    used, most_percent = context.profile.of(utilization), site.step_percent
    if used and site.host_us > site.gpu_us and used.mean.busy_percent is not None:
        most_percent = min(most_percent, 100 - used.mean.busy_percent)
    is_explained = any(
        site.site in row.where
        or (
            row.predicted is not None
            and row.predicted.gain_percent >= _EXPLAINED * most_percent
            and row.predicted.least_gain_percent >= _SURELY_EXPLAINED * most_percent
        )
        for row in context.found
    )
    return most_percent >= thresholds.site_percent and not is_explained


def _is_dense_update(context: SpanContext, site: LedgerSite) -> bool:
    """Whether an optimizer's kernels are the site, and the program computes the dense gradient of an embedding."""
    return is_foreach(site.site) and any(map(is_embedding_backward, context.profile.trace.names))


def _next_step(context: SpanContext, site: LedgerSite, is_work: bool, names: list[str]) -> str:
    kind = site.kinds[0]
    if _is_dense_update(context, site):
        return (
            "An embedding has a dense gradient, so the optimizer goes over all of its rows: if a step looks up few of "
            "them, nn.Embedding(sparse=True) with an optimizer that takes sparse gradients, such as SparseAdam"
        )
    if kind == "kernel_launches" and context.profile.of(region_calls):
        return (
            'Launch less often: CUDA graphs (mode="reduce-overhead"), which need the same shapes and memory in each '
            "step, such as a static cache; or a larger batch"
        )
    if is_work:
        shown = "Kernels shows how near they are to what the device can do" if site.gpu_us else _SHAPES_SHOW
        return f"{shown}; other shapes or types may need less"
    function = next((name for name in names if frame_of(name)), "")  # of those that take most of the time
    if work := library_work(function):
        return f"{work.library} {work.does} there. {work.next_step}"
    if kind in ("kernel_launches", "eager_operators", "graph_breaks"):
        return "Compile the function that calls them, or give one operator what several calls are given now"
    if site.file:
        return "Take it out of the step: compute it once before the loop, in the data loader's workers, or on the GPU"
    known = context.summary and context.summary.environment.HasField("compile_called")
    may_compile = site.site.endswith(LOOKUPS) and not known  # what is right before a compiled call
    example = ", such as torch.compile called in each step" if may_compile else ""
    return f"Record with with_stack=True to see the lines: it is Python code{example}, or waiting for something else"
