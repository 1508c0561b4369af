"""What a rank ran of collectives, as columns: when, of which group, and how much it moved.

Where a rank has GPUs these are NCCL's and RCCL's kernels, with what torch recorded beside them; without, the calls of
Gloo on threads of its own. Times are Unix time in ns, each rank's by its own clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.columns import codes_of, host_slices, mask_of
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.collectives import (
    PAIRED,
    PARAM_COMMS,
    Operation,
    collective,
    element_bytes,
    is_coalesced,
    is_group_call,
    is_host_collective,
    message_bytes,
    moves_data,
    operation_of,
)
from tb_torchcompile_plugin.torch_names.slices import LABEL

# Calls of c10d that NCCL runs as one kernel: `batch_isend_irecv`, pipelines, `_coalescing_manager`. torch
# writes beside such a kernel only that it was coalesced; what it is, the calls before it on the same thread
# say.


def coalesced_call(trace: Trace, rows: Int64s) -> Int64s:
    """The call that each of these kernels is of, where it is the only one that was coalesced into it; else -1."""
    launch = trace.launch_of()[rows]
    label = climb(trace.parent, launch, mask_of(trace.names, is_coalesced)[trace.name])
    if not (label >= 0).any():
        return label
    calls = {
        one: its
        for track in np.unique(trace.track[label[label >= 0]])
        for one, its in _of_track(trace, track)
    }
    return np.array([calls.get(one, -1) for one in label.tolist()], np.int64)


def _of_track(trace: Trace, track: int) -> list[tuple[int, int]]:
    """Each label of what a thread coalesced with the one call that began between the label before and it."""
    labels = host_slices(trace, is_coalesced)
    labels = labels[trace.track[labels] == track]
    calls = _waiting(trace)
    calls = calls[trace.track[calls] == track]
    place = np.searchsorted(trace.ts[calls], trace.ts[labels])
    ranges = pairwise([0, *place.tolist()])
    return [
        (label, int(calls[last - 1]))
        for label, (first, last) in zip(labels.tolist(), ranges)
        if last - first == 1
    ]


def _waiting(trace: Trace) -> Int64s:
    """What c10d says of calls that move data and that it did not hand to the back end by themselves."""
    said = host_slices(trace, PARAM_COMMS.__eq__)
    words = [moves_data(text) for text in [*(trace.texts.get("collective") or ()), ""]]
    said = said[np.array(words)[codes_of(trace, "collective", said)]]
    own = host_slices(trace, lambda name: collective(name) is not None and not is_coalesced(name))
    handed = trace.parent[own]
    return np.asarray(said[~np.isin(said, handed)])


class Group(NamedTuple):
    """A process group. ranks: of the whole job; () where torch did not record them."""

    name: str
    ranks: tuple[int, ...]

    def __hash__(self) -> int:
        """Of few of its ranks: there may be thousands."""
        return hash((self.name, len(self.ranks), self.ranks[:2]))


class Kind(NamedTuple):
    """What torch tells of a collective. dtype: "" unknown. message_bytes, source, destination: -1 unknown."""

    operation: Operation
    group: Group | None
    dtype: str
    message_bytes: int
    source: int
    destination: int

    @property
    def what(self) -> str:
        """The same for a send and its recv."""
        return "pair" if self.operation in PAIRED else self.operation

    @property
    def group_size(self) -> int:
        """0 where torch did not record the ranks."""
        return len(self.group.ranks) if self.group else 0


class RankCalls(NamedTuple):
    """One row a collective that the rank ran, in order of time. row: in its trace. begin, end, launch (begin of the
    call that launched it or handed it to Gloo, -1 where that was not recorded): ns, Unix time. seq: the group's own
    number of it, -1 unknown. kind: place in `kinds`. comms: of torch's id of it a hash, -1 without one."""

    row: Int64s
    begin: Int64s
    end: Int64s
    launch: Int64s
    seq: Int64s
    kind: Int64s
    comms: Int64s
    kinds: list[Kind]


def communication_rows(profile: Profile) -> Int64s:
    """Kernels of collectives in order of time; on a rank that has none, what Gloo ran."""
    trace, rows = profile.trace, profile.of(gpu_work).of("communication").index
    if not len(rows):
        rows = host_slices(trace, is_host_collective, (LABEL,))
    return np.asarray(rows[np.argsort(trace.ts[rows], kind="stable")], np.int64)


def rank_calls(profile: Profile) -> RankCalls:
    """Of one rank."""
    trace, rows = profile.trace, profile.of(communication_rows)
    source = _source(trace, rows)
    launch = np.where(_on_host(trace, rows), _called(trace, rows), trace.launch_of()[rows])
    begin = trace.ts[rows] + trace.base_ns
    codes: dict[Kind, int] = {}
    kind = [codes.setdefault(one, len(codes)) for one in _kinds(profile, rows, source)]
    return RankCalls(
        row=rows,
        begin=begin,
        end=begin + trace.dur[rows],
        launch=np.where(launch >= 0, trace.ts[launch] + trace.base_ns, -1),
        seq=codes_of(trace, "collective_seq", source),
        kind=np.array(kind, np.int64),
        comms=_comms(trace, source),
        kinds=list(codes),
    )


def _comms(trace: Trace, source: Int64s) -> Int64s:
    """Equal for equal ids, on whichever rank."""
    hashes = [_hash(text) if text else -1 for text in [*(trace.texts.get("comms_id") or ()), ""]]
    return np.array(hashes, np.int64)[codes_of(trace, "comms_id", source)]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def _on_host(trace: Trace, rows: Int64s) -> npt.NDArray[np.bool_]:
    return mask_of(trace.cats, LABEL.__eq__)[trace.cat[rows]]


def _called(trace: Trace, rows: Int64s) -> Int64s:
    """The call of c10d that each of Gloo's is of, in order: threads that take them up may begin in another one. Itself
    where calls were not recorded."""
    made = host_slices(trace, is_group_call)
    made = made[np.argsort(trace.ts[made], kind="stable")]
    operations = [operation_of(name) for name in trace.names]
    of_call, of_row = (
        np.array([operations[name] for name in trace.name[some]], str) for some in (made, rows)
    )
    called: Int64s = rows.copy()
    for operation in set(of_row.tolist()):
        mine, its = np.flatnonzero(of_row == operation), made[of_call == operation]
        its = its[: len(mine)]
        if len(its) == len(mine) and (trace.ts[its] <= trace.ts[rows[mine]]).all():
            called[mine] = its
    return called


def _source(trace: Trace, rows: Int64s) -> Int64s:
    """The slice that has torch's word about each: itself, or that of its call; itself where none has."""
    named = host_slices(trace, PARAM_COMMS.__eq__)
    by_id = dict(zip(trace.external_id[named].tolist(), named.tolist()))
    itself = codes_of(trace, "collective", rows) >= 0
    ids = zip(trace.external_id[rows].tolist(), itself.tolist(), rows.tolist())
    source = np.array([row if known or id < 0 else by_id.get(id, row) for id, known, row in ids], np.int64)
    call = coalesced_call(trace, rows)
    return np.where(call >= 0, call, source)


def _kinds(profile: Profile, rows: Int64s, source: Int64s) -> list[Kind]:
    trace, labels, alone = profile.trace, _labels(profile.trace, rows), _only_group(profile)

    def text(column: str) -> Iterable[str]:
        texts = [*(trace.texts.get(column) or ()), ""]
        return (texts[code] for code in codes_of(trace, column, source).tolist())

    def number(column: str) -> Iterable[int]:
        return map(int, codes_of(trace, column, source))

    return [
        Kind(
            operation=(what := operation_of(word or label)),
            group=Group(group, _ranks(ranks)) if group else alone if _tells(word, label) else None,
            dtype=dtype,
            message_bytes=_message(what, given, taken, element_bytes(dtype)),
            source=sender,
            destination=receiver,
        )
        for word, label, group, ranks, dtype, given, taken, sender, receiver in zip(
            text("collective"),
            labels,
            text("group_name"),
            text("group_ranks"),
            text("dtype"),
            number("in_elements"),
            number("out_elements"),
            number("source_rank"),
            number("destination_rank"),
        )
    ]


def _tells(word: str, label: str) -> bool:
    """Whether torch tells what it is. A kernel's name is not enough, and what was coalesced is of no one kind."""
    return bool(word or collective(label)) and operation_of(word or label) != "other"


def _message(operation: Operation, given: int, taken: int, element: int | None) -> int:
    return message_bytes(operation, given * element, taken * element) if element and given >= 0 else -1


def _labels(trace: Trace, rows: Int64s) -> list[str]:
    """The label of a collective around the launch of each; the kernel's own name where there is none."""
    launch = trace.launch_of()[rows]
    labels = mask_of(trace.names, lambda name: collective(name) is not None)[trace.name]
    label = climb(trace.parent, np.where(launch >= 0, launch, rows), labels)
    return [trace.names[name] for name in trace.name[np.where(label >= 0, label, rows)]]


def _ranks(text: str) -> tuple[int, ...]:
    """Of "[0, 1]"; () where it is not that: torch shortens long lists."""
    try:
        return _numbers(json.loads(text or "[]"))
    except json.JSONDecodeError:
        return ()


def _numbers(ranks: object) -> tuple[int, ...]:
    """() for anything but a list of them."""
    known = isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks)
    return tuple(ranks) if isinstance(ranks, list) and known else ()


def _only_group(profile: Profile) -> Group | None:
    """The process group where there is but one: a call that does not tell its group is of that."""
    config = profile.trace.distributed.get("pg_config")
    if not isinstance(config, list) or len(config) != 1 or not isinstance(config[0], dict):
        return None
    return Group(str(config[0].get("pg_name", "")), _numbers(config[0].get("ranks")))
