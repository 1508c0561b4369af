"""Where a warm start was there to be had, and was missed: what to change so that the caches hit."""

from __future__ import annotations

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.finding import Finding
from tb_torchcompile_plugin.analysis.startup.beside import Starts
from tb_torchcompile_plugin.analysis.startup.key_differences import differences
from tb_torchcompile_plugin.analysis.startup.lookups import looked_up, would_save_ns
from tb_torchcompile_plugin.analysis.startup.parts import parts_ns
from tb_torchcompile_plugin.analysis.words import at_line, duration
from tb_torchcompile_plugin.compile_log.record import forward_compilations
from tb_torchcompile_plugin.profile.units import to_seconds

RULE = "cold_start"
_NEXT = (
    "Give every process of the job the same TORCHINDUCTOR_CACHE_DIR, and keep the settings and code that are part "
    "of the key the same; or hand the entries on: torch.compiler.save_cache_artifacts, load_cache_artifacts"
)


def start_findings(starts: Starts) -> list[Finding]:
    """One, where a miss has a cause that another process of the logdir shows. A first run has none."""
    data = starts.mine.data
    avoidable = {place: one for place, one in starts.of(differences).items() if one.avoidable}
    saved_ns = data.of(would_save_ns)
    if not avoidable or saved_ns is None or to_seconds(saved_ns) < thresholds.cold_start_s:
        return []
    place, one = min(avoidable.items(), key=lambda pair: not pair[1].same_run)
    whole_ns, lookup = sum(data.of(parts_ns).values()), data.of(looked_up)[place][0]
    frame = forward_compilations(data.summary).get((lookup.epoch, lookup.compile_id))
    return [
        Finding(
            rule=RULE,
            severity="warning" if one.same_run else "info",  # what differs between runs may be meant to
            title=(
                f"A warm start would have skipped up to {duration(saved_ns / 1000)} of the "
                f"{duration(whole_ns / 1000)} of this start-up. The caches missed, against {one.than}: {one.what}"
            ),
            evidence={
                "would_save_s": to_seconds(saved_ns),
                "start_up_s": to_seconds(whole_ns),
                "missed_lookups": len(avoidable),
            },
            saves_us=None,
            panel="startup",
            row=None,
            next_step=_NEXT,
            where=[at_line(frame.file, frame.line)] if frame and frame.file else [],
        )
    ]
