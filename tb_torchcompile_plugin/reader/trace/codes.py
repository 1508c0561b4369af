"""Give codes to what events say: one for (ph, cat, name, pid, tid), the *combo* of an event, and one for each text.

A combo determines the kind of event, and with it the args that become columns. All codes are private to the
dictionaries that gave them; `table` brings those of several together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.reader.trace.events import ARG_NAMES, finite, whole
from tb_torchcompile_plugin.torch_names.collectives import PARAM_COMMS
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.operators import CONVOLUTION as CONVOLUTION_NAME
from tb_torchcompile_plugin.torch_names.slices import (
    FORWARD_BACKWARD,
    GPU_CATS,
    KERNEL,
    MEMORY_MOMENT,
    PYTHON_FUNCTION,
    RUNTIME_CATS,
    current_cat,
)

Array = npt.NDArray[Any]
Combo = tuple[Any, Any, Any, Any, Any]  # ph, cat, name, pid, tid
Columns = tuple[int, Array, dict[str, Array]]  # kind, places of events, and what their args hold, by field
combo_of = attrgetter("ph", "cat", "name", "pid", "tid")

GPU, RUNTIME, PYTHON, HOST, CONVOLUTION, COLLECTIVE, PARAMETERS, META, MEMORY, FLOW, UNUSED = range(11)
LAST_SLICE_KIND = PARAMETERS

TEXT_FIELDS = (
    *("grid", "block", "stack", "input_types", "input_dims", "concrete_inputs"),
    *("collective", "group_name", "group_ranks", "dtype", "comms_id"),
)
FLOATS: dict[str, Any] = {"occupancy": np.float32, "kernel_num_gb": np.float64, "kernel_flop": np.float64}

_LAUNCH_FIELDS = ("correlation", "external")
_DEVICE_FIELDS = (*_LAUNCH_FIELDS, "device", "stream")
_HOST_FIELDS = (
    *(*_DEVICE_FIELDS, "sequence", "forward_thread", "kernel_num_gb", "kernel_flop"),
    *("input_types", "input_dims"),
)
_GPU_FIELDS = (*_DEVICE_FIELDS, "registers", "shared_memory", "occupancy", "bytes", "grid", "block", "stack")
COLLECTIVE_FIELDS = (
    *("collective", "group_name", "group_ranks", "dtype", "comms_id"),
    *("collective_seq", "in_elements", "out_elements", "source_rank", "destination_rank"),
)

# what each kind of slice may carry; the table is also what `Trace` offers as columns
SLICE_FIELDS: dict[int, tuple[str, ...]] = {
    GPU: _GPU_FIELDS,
    RUNTIME: _LAUNCH_FIELDS,
    PYTHON: ("python_id", "python_parent", "python_module"),
    HOST: _HOST_FIELDS,
    # the one operator whose work does not follow from its shapes alone
    CONVOLUTION: (*_HOST_FIELDS, "concrete_inputs"),
    # the kernels of collectives, and what c10d says of each where it is called
    COLLECTIVE: (*_GPU_FIELDS, *COLLECTIVE_FIELDS),
    PARAMETERS: (*_HOST_FIELDS, *COLLECTIVE_FIELDS),
}
MEMORY_FIELDS = ("memory_bytes", "total_allocated", "total_reserved", "address", "device_type", "device_id")
ARGS_FIELDS = {**SLICE_FIELDS, MEMORY: MEMORY_FIELDS}

KIND_NAMES = {
    GPU: "gpu",
    RUNTIME: "runtime",
    PYTHON: "python",
    HOST: "host",
    CONVOLUTION: "convolution",
    COLLECTIVE: "collective",
    PARAMETERS: "parameters",
}

_KIND_OF_CAT = {
    **dict.fromkeys(GPU_CATS, GPU),
    **dict.fromkeys(RUNTIME_CATS, RUNTIME),
    PYTHON_FUNCTION: PYTHON,
}
_KIND_OF_NAME = {CONVOLUTION_NAME: CONVOLUTION, PARAM_COMMS: PARAMETERS}


def kind_of(ph: Any, cat: Any, name: Any) -> int:
    """Return the kind of an event, from its phase, category and name."""
    if ph == "X":
        cat = current_cat(cat, str(name))
        if cat == KERNEL and category_of(str(name)) == "communication":
            return COLLECTIVE
        return _KIND_OF_CAT.get(cat, _KIND_OF_NAME.get(name, HOST))
    if ph == "M":
        return META
    if ph in ("i", "I") and name == MEMORY_MOMENT:
        return MEMORY
    return FLOW if ph in ("s", "f") and cat == FORWARD_BACKWARD else UNUSED


class Combos(dict[Combo, int]):
    """Combo → code, codes in order of first appearance. `kinds[code]` is the kind of event."""

    def __init__(self) -> None:
        self.kinds: Array = np.zeros(1024, np.int8)
        self.phases: dict[str, int] = {}
        self.phase_codes: Array = np.zeros(1024, np.int16)

    def __missing__(self, key: Combo) -> int:
        code = len(self)
        if code == len(self.kinds):
            self.kinds = np.concatenate([self.kinds, np.zeros_like(self.kinds)])
            self.phase_codes = np.concatenate([self.phase_codes, np.zeros_like(self.phase_codes)])
        self.kinds[code] = kind_of(key[0], key[1], key[2])
        self.phase_codes[code] = self.phases.setdefault(key[0], len(self.phases))
        self[key] = code
        return code


class Interner(dict[bytes, int]):
    """JSON text → code. It starts with the empty text, whose code is -1."""

    def __missing__(self, key: bytes) -> int:
        code = self[key] = len(self) - 1
        return code


class Dictionaries:
    """The dictionaries of one decoder; they live as long as it."""

    def __init__(self) -> None:
        self.combos = Combos()
        self.interners = {name: Interner({b"": -1}) for name in TEXT_FIELDS}

    def column(self, args: Sequence[Any], name: str) -> Array:
        """Return what each of `args` holds of that name: a number, or the code of a text; -1 where it has none."""
        if name in FLOATS:
            with np.errstate(over="ignore"):  # what is too large for a column is infinite there
                return numbers(args, name, FLOATS[name], real)
        values = self._codes(args, name, name)
        old_name = f"{name}_old"
        if old_name in ARG_NAMES and (values < 0).any():
            return np.where(values < 0, self._codes(args, name, old_name), values)
        return values

    def _codes(self, args: Sequence[Any], name: str, attribute: str) -> Array:
        if name not in self.interners:
            return numbers(args, attribute, np.int64, whole)
        texts = map(bytes, map(attrgetter(attribute), args))
        return np.fromiter(map(self.interners[name].__getitem__, texts), np.int32, len(args))


def numbers(items: Sequence[Any], name: str, dtype: Any, clean: Callable[[Any], Any]) -> Array:
    """Return an attribute of each item as numbers, by `clean` where numpy alone cannot."""
    get = attrgetter(name)
    try:
        return np.fromiter(map(get, items), dtype, len(items))
    except (TypeError, ValueError, OverflowError):
        return np.array([clean(value) for value in map(get, items)], dtype)


def real(value: Any) -> float:
    """Return a number; nan for all that is none."""
    number = finite(value)
    return np.nan if number is None else number
