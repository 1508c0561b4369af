"""Format numbers and names in sentences, and describe columns whose field names do not say how they are shown.

The same way in the tab, in the terminal and in findings.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import floor, log10

import msgspec


def column_head(title: str = "", **options: bool) -> msgspec.Meta:
    """Describe the column of a field, or the table of a field that holds rows.

    Used as `self_us: Annotated[float, column_head("Self", bar=True)]`.
    title: the column's head, where the name of the field would not do. options: `bar` next to the number, `total` below
    the column, `hidden` until the user chooses it, `grow` for a text that takes the rest of the width, `wrap` for one
    that is shown in full on several lines, `unseen` for no column at all, `unix` for seconds that are a date;
    `inner` for a field of rows: the table shows how many, the details of a row list them.
    """
    return msgspec.Meta(title=title or None, extra={name: value for name, value in options.items() if value})


HIDDEN = column_head(hidden=True)

# Smallest value (µs) with this unit, its size (µs), its name. Minutes start late: 101 s is clearer than 1.69 min.
_UNITS = ((3600e6, 3600e6, "h"), (1000e6, 60e6, "min"), (1e6, 1e6, "s"), (1e3, 1e3, "ms"), (1.0, 1.0, "µs"))
_BYTES = ("B", "kB", "MB", "GB", "TB")
_MAX_LISTED = 8  # numbers listed in a sentence
# "3 in 2 steps" is clearer than "1.5 per step", but only with small numbers. Chosen by eye.
_FEW, _MOST_STEPS = 10, 1000
_NEGLIGIBLE = 0.05  # of a mean count, that rounding it may change without "about"


def significant(value: float, digits: int = 3) -> str:
    """Write three significant digits: 22.4, 0.713, 1,234. A prediction has two."""
    rounded = float(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - floor(log10(abs(rounded)))) if rounded else 0
    return f"{rounded if decimals or digits < 3 else value:,.{decimals}f}"


def duration(us: float, digits: int = 3) -> str:
    """Write a time in its largest unit, chosen after rounding: 999.7 µs is 1.00 ms. A prediction has two digits."""
    size, unit = _unit(float(f"{us:.{digits}g}"))
    return f"{significant(us / size, digits)} {unit}"


def _unit(us: float) -> tuple[float, str]:
    """Return the size (µs) and the name of the unit for a time."""
    return next((row for row in _UNITS if float(f"{us:.3g}") >= row[0]), _UNITS[-1])[1:]


def about(us: float, low_us: float, high_us: float) -> str:
    """Write a predicted time with two digits, and its range: "about 28 ms (27-30)"."""
    size, unit = _unit(float(f"{us:.2g}"))
    time, low, high = (significant(value / size, 2) for value in (us, low_us, high_us))
    return f"about {time} {unit}" if low == high else f"about {time} {unit} ({low}–{high})"


def seconds(s: float | None) -> str:
    """Write a time like `duration`; "an unknown time" for None."""
    return "an unknown time" if s is None else duration(1e6 * s)


def percent(value: float, digits: int = 3) -> str:
    """Write a percentage: "9.22 %"; a predicted one with two digits."""
    return "< 0.01 %" if 0 < value < 0.01 else f"{significant(value, digits)} %"


def size(number: float) -> str:
    """Write a number of bytes: 4.2 MB."""
    power = min(len(_BYTES) - 1, floor(log10(number) / 3)) if number >= 1 else 0
    return f"{significant(number / 1000**power) if power else f'{number:,.0f}'} {_BYTES[power]}"


def device_name(device: int | str) -> str:
    """Name a device: "GPU 0", "CPU"."""
    return "CPU" if device == "cpu" else f"GPU {device}"


def at_line(file: str, line: int | None) -> str:
    """Write "train.py:12"; only the file if the line is unknown, "" without a file."""
    name = file.rpartition("/")[2]
    return name if line is None or not name else f"{name}:{line}"


def function_at(function: str, file: str, line: int | None) -> str:
    """Write "step (train.py:12)", or only the known part."""
    location = at_line(file, line)
    return f"{function} ({location})" if function and location else function or location


def shortest_unique_paths(files: Iterable[str]) -> dict[str, str]:
    """Map files to the shortest unique end of their path: "train.py", but "b/train.py" if there is "a/train.py"."""
    paths = set(files)
    names = {}
    for path in paths:
        parts = path.split("/")
        ends = ("/".join(parts[-count:]) for count in range(1, len(parts)))
        unique = (end for end in ends if sum(f"/{other}".endswith(f"/{end}") for other in paths) == 1)
        names[path] = next(unique, path)
    return names


def listed_numbers(numbers: Sequence[int]) -> str:
    """List numbers: "0, 1, 5"; at most the first eight."""
    return ", ".join(map(str, numbers[:_MAX_LISTED])) + (" …" if len(numbers) > _MAX_LISTED else "")


def signed(value: float, text: Callable[[float], str]) -> str:
    """Write a change: "+4.20 ms"."""
    return ("−" if value < 0 else "+") + text(abs(value))


def often(times: float) -> str:
    """Write how often something happened: "once", "12 times", "1.5 times"."""
    return "once" if rounded(times) == "1" else f"{rounded(times)} times"


def count_per_step(mean: float, each: str) -> tuple[str, str]:
    """Return a mean count as a count, and what it is of: "5", "in 6 steps" for 0.833; "12", "per step" for 12.4."""
    if mean < _FEW:
        share = Fraction(mean).limit_denominator(_MOST_STEPS)
        if share.denominator > 1 and (mean < 2 or share.denominator < _FEW):
            return str(share.numerator), f"in {share.denominator:,} steps"
    is_close = abs(mean - round(mean)) <= _NEGLIGIBLE * mean
    return f"{'' if is_close else 'about '}{mean:,.0f}", each


def plural_of_mean(number: float, noun: str) -> str:
    """Write a mean count with its noun: "1 launch", "1.5 launches"."""
    return f"{rounded(number)} {noun}{'' if rounded(number) == '1' else 's'}"


def rounded(number: float) -> str:
    """Write a mean count: "1", "1.5", "1,152"."""
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"


def joined_names(names: Sequence[str]) -> str:
    """Join names: "f", "f and g", "f, g and h"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def plural(number: int, noun: str, plural_noun: str | None = None) -> str:
    """Write a count with its noun: "1 step", "2 steps", "3 branches"."""
    return f"{number:,} {noun if number == 1 else plural_noun or noun + 's'}"
