"""From when on is something worth a finding? All limits of all rules; docs/findings.md lists them."""

from __future__ import annotations

# Shares are percent of the profiled time: the steps, or the whole span where there are none.
gain_percent = 5.0  # of a step: what a fix would bring
considered_percent = 1.0  # of a step: from there on it is told that a fix would bring little
recompiles_percent = 1.0
compile_percent = 1.0
autotune_percent = 1.0
communication_percent = 10.0

# Shares of the summed GPU event time.
unnamed_percent = 1.0
kernel_percent = 25.0
dominant_percent = 50.0
gpu_bound_percent = 80.0  # of a step that the GPU is busy: then it sets the pace

kernel_bandwidth_percent = 40.0  # of the device's peak

memory_percent = 90.0  # of what the device has

cache_missed_s = 30.0  # compile time of what missed
sizes_s = 2.0  # compile time of graphs that were compiled anew for other sizes
cold_start_s = 5.0  # that hits would have skipped, where they were to be had
steps_least = 2
driver_least = "525.85.12"
cuda_least = 12_000  # as the trace header writes it: 12.4 is 12040

# From which share of the profiled time on a finding is a warning, and critical.
warning_percent = 5.0
critical_percent = 20.0
