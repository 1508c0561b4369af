"""Lines that TORCH_LOGS prints since torch 2.3: their head, and messages. None of them is a contract of torch."""

import re

# Launchers, loggers and people put their own prefixes in front, so it may begin anywhere in a line. The path is
# relative to the first entry of sys.path that contains it. Of lines without an id, those about failures are read.
HEAD = re.compile(
    rb"(?:\[rank(?P<rank>\d{1,7})\]:)?[VDIWEC]\d{4} (?P<time>\d\d:\d\d:\d\d(?:\.\d{1,9})?) +(?P<pid>\d{1,18}) "
    rb"(?P<place>(?:[^\s\]]{0,255}[/\\])?torch[/\\]"
    rb"(?:_dynamo[/\\](?P<frames>convert_frame\.py)|[^\s\]]{1,255}):\d{1,9})\]"
    rb"(?: \[(?P<id>(?:!\d{1,9}/)?\d{1,9}/\d{1,9})(?:_(?P<attempt>\d{1,9}))?\](?: \[__(?P<topic>\w{1,63})\])?|"
    rb"(?(frames)|(?!))) ?"
)
# What tools that merge the output of several machines put in front of a line: kubectl --prefix, docker compose, srun
# --label, Ray. Process ids of two machines may be equal.
MACHINE = re.compile(
    rb"\[pod/[^\]\s]{1,255}\]|[\w.-]{1,255} {1,99}\| |\d{1,9}: |\(\w{1,99} pid=\d{1,18}, ip=[\w.:]{1,99}\)"
)
COLORS = re.compile(rb"\x1b\[[\d;]*[A-Za-z]")

# The first line of a message. Lines of one head are one message, unless another one begins.
BEGINS = re.compile(r"Graph break[: ]|WON'T CONVERT |Recompiling function |torch\._dynamo hit config\.")
FAILED = re.compile(r"WON'T CONVERT (?P<function>\S+) (?P<file>[^\n]+) line (?P<line>\d{1,9}) *$")
# Its exception, after the last traceback; an empty line ends it.
TRACEBACK = "Traceback (most recent call last):"
EXCEPTION = re.compile(r"^(?:\w{1,99}\.){0,9}(?P<type>\w{1,99}): (?P<reason>.*(?:\n.+)*)", re.MULTILINE)
# torch prints the stack of a break once, and later ones at the same place without it.
REPEATED = re.compile(r"\AGraph break \(user stack suppressed[^)\n]*\)")
_PLACE = r"(?P<file>[^\n]+?):(?P<line>\d{1,9})"
RECOMPILING = re.compile(rf"Recompiling function (?P<function>\S+) in {_PLACE}$")
REASON = re.compile(r" *- (?P<text>.*)")
LIMIT = re.compile(
    r"torch\._dynamo hit config\.\w+ \((?P<limit>\d{1,9})\)\n"
    rf"(?: *function: '(?P<function>[^'\n]+)' \({_PLACE}\)\n)?"
)
# Of the messages without a topic.
TRACING = re.compile(
    rf"(?:Step \d+: )?torchdynamo start (?P<verb>tracing|compiling) (?P<function>\S+) {_PLACE}(?:,|$)"
)
# Of a frame: before torch traces it, and after it was compiled.
BEGUN, DONE = "create_env", "produce_guards"
SYMBOL = re.compile(r"create_symbol (?P<symbol>\w+) = (?P<val>\S+) for (?P<source>\S+) (?P<vr>\[[^\]]*\])")
CHANGED = re.compile(r"marking (?P<name>\S+) as dynamic \(from automatic dynamic")
