"""From when on is something worth a finding? All limits of all rules, and judgements that several modules share.

The limits are in lower case, and docs/findings.md lists them with their values. They were chosen by eye on the
recordings and on the external programs of docs/what_if.md, unless a source is named.
"""

# Percent of the profiled time: the steps, or the whole span where there are none.
IDLE_PERCENT = 2.0  # of a step in which a GPU idles: for less it is not said why
site_percent = 15.0  # of a step, from which on a site without a known cause is named
unexplained_percent = (
    50.0  # of a step on the CPU that is compiled code without names of kernels; chosen by eye
)
gain_percent = 5.0  # of a step: what a fix would bring
considered_percent = 1.0  # of a step: from there on a fix that brings little is listed
recompiles_percent = 1.0
compile_percent = 1.0
autotune_percent = 1.0
communication_percent = 10.0

# Percent of the summed GPU event time.
kernel_percent = 25.0
dominant_percent = 50.0
gpu_busy_percent = 80.0  # of a step: one kernel is worth a word only if the GPU is busy for so much of it

kernel_bandwidth_percent = 40.0  # of the device's peak

memory_percent = 90.0  # of the device's memory

cache_missed_s = 30.0  # compile time of compilations that missed the cache
sizes_s = 2.0  # compile time of graphs that were compiled again for other sizes
cold_start_s = 5.0  # of compile time that cache hits would have skipped
steps_least = 2
driver_least = "525.85.12"
cuda_least = 12_000  # as the trace header writes it: 12.4 is 12040

# Percent of the profiled time from which on a finding is a warning, and critical.
warning_percent = 5.0
critical_percent = 20.0

# Judgements that no rule compares with directly.
USUAL_CALL_NS = 50_000  # of host time for one operator, call or gap: what takes longer does more than launch
MAX_NAMES = 3  # in one sentence: functions, sizes, steps, kernels
MAX_NAME_CHARS = 60  # in a sentence: names of kernels have hundreds
SLOWED_BY_PROFILER = 1.25  # profiled / unprofiled step: from here on host times are called overstated
