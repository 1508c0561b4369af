"""The limits of all findings, and judgements that several modules share.

Limits are in lower case, and docs/reference/findings.md lists their values. They were chosen on the recordings and on
the external programs of docs/benchmarks.md, unless a source is named.
"""

# Percent of the profiled time: the steps, or the whole span where there are none.
IDLE_PERCENT = 2.0  # of a step in which a GPU idles: below, causes are not listed
site_percent = 15.0  # of a step: from here on, a site without a known cause is reported
unexplained_percent = 50.0  # of a step on the CPU: compiled code without names of kernels
gain_percent = 5.0  # of a step: predicted gain of a fix
considered_percent = 1.0  # of a step: from here on, a fix with a small gain is listed
recompiles_percent = 1.0
compile_percent = 1.0
autotune_percent = 1.0
communication_percent = 10.0

# Percent of the summed GPU event time.
kernel_percent = 25.0
dominant_percent = 50.0
gpu_busy_percent = 80.0  # of a step: one kernel is reported only if the GPU is busy for at least this share

kernel_bandwidth_percent = 40.0  # of the device's peak

memory_percent = 90.0  # of the device's memory

cache_missed_s = 30.0  # compile time of compilations that missed the cache
sizes_s = (
    2.0  # compile time of graphs that were recompiled for other sizes, or other numbers that modules hold
)
cold_start_s = 5.0  # of compile time that cache hits would have skipped
steps_least = 2

# Percent of the profiled time from which on a finding is a warning, and critical.
warning_percent = 5.0
critical_percent = 20.0

# Judgements that are not limits of a finding.
USUAL_CALL_NS = 50_000  # host time of one operator, call or gap: longer ones do more than launch kernels
MAX_NAMES = 3  # in one sentence: functions, sizes, steps, kernels
MAX_LINES = 3  # of the program, in one finding
MAX_NAME_CHARS = 60  # in a sentence: names of kernels may have hundreds
SLOWED_BY_PROFILER = 1.25  # profiled / unprofiled step: from here on, host times are reported as overstated
