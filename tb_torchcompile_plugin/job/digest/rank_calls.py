"""Which collectives did a rank run: when, of which process group, and how many bytes?

On GPUs these are the kernels of NCCL and RCCL with what torch recorded about them; otherwise the calls of Gloo, which
run on threads of their own. Times are Unix time in ns by the clock of the rank.
"""

import json
from collections.abc import Hashable, Iterable
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.columns import Int64s, Mask, codes_of, host_slices, mask_of
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
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


class Group(NamedTuple):
    """A process group."""

    name: str
    ranks: tuple[int, ...]  # of the whole job; () where torch did not record them

    def __hash__(self) -> int:
        """Hash a few of the ranks: there may be thousands."""
        return hash((self.name, len(self.ranks), self.ranks[:2]))


class Kind(NamedTuple):
    """What torch recorded about a collective; "" and -1 are unknown."""

    operation: Operation
    group: Group | None
    dtype: str
    message_bytes: int
    source: int
    destination: int

    @property
    def what(self) -> str:
        """The operation; a send and its recv are both "pair"."""
        return "pair" if self.operation in PAIRED else self.operation

    @property
    def group_size(self) -> int:
        """The number of ranks; 0 where torch did not record them."""
        return len(self.group.ranks) if self.group else 0


def numbered(of_kinds: Iterable[Hashable]) -> Int64s:
    """Return equal numbers for equal values, from 0 on; one for each kind."""
    codes: dict[Hashable, int] = {}
    return np.array([codes.setdefault(value, len(codes)) for value in of_kinds] or [0], np.int64)


class Calls(NamedTuple):
    """The collectives of one rank, or of all ranks rank by rank, as columns in order of time; -1 is unknown."""

    rank_index: Int64s  # index of the rank in the job, 0 where these are the calls of one rank
    begin: Int64s
    end: Int64s
    launch: Int64s  # begin of the call that launched it or handed it to Gloo
    seq: Int64s  # its sequence number in its group
    kind: Int64s  # index into `kinds`
    comms: Int64s  # hash of torch's id of it
    kinds: list[Kind]

    @property
    def dur(self) -> Int64s:
        """How long each takes."""
        return self.end - self.begin

    def take(self, rows: Int64s) -> "Calls":
        """Return the calls in these rows."""
        return Calls._make((*(column[rows] for column in self[:-1]), self.kinds))

    def of_rank(self, rank_index: int) -> slice:
        """Return the rows of one rank."""
        return slice(*np.searchsorted(self.rank_index, (rank_index, rank_index + 1)).tolist())

    def kind_of(self, row: int | np.integer) -> Kind:
        """Return what the call in this row is."""
        return self.kinds[int(self.kind[row])]

    def groups(self) -> Int64s:
        """Return by call a number of its group, -1 where that is unknown."""
        number = numbered(kind.group for kind in self.kinds)[self.kind]
        return np.where(self.of_kind(kind.group is not None for kind in self.kinds), number, -1)

    def of_kind(self, of_each: Iterable[bool]) -> Mask:
        """Return by call what holds for its kind; of_each: one for each of `kinds`."""
        return np.array([*of_each, False])[self.kind]


def communication_rows(profile: Profile) -> Int64s:
    """Return the trace's rows of the collectives: kernels, or on a rank without any, what Gloo ran; by time."""
    trace, rows = profile.trace, profile.of(gpu_work).of("communication").index
    if not len(rows):
        rows = host_slices(trace, is_host_collective, (LABEL,))
    return np.asarray(rows[np.argsort(trace.ts[rows], kind="stable")], np.int64)


def rank_calls(profile: Profile) -> Calls:
    """Return the collectives in the order of `communication_rows`."""
    trace, rows = profile.trace, profile.of(communication_rows)
    source = _described_by(trace, rows)
    on_host = mask_of(trace.cats, LABEL.__eq__)[trace.cat[rows]]
    launch = np.where(on_host, _gloo_calls(trace, rows), trace.launch_of()[rows])
    begin = trace.ts[rows] + trace.base_ns
    hashes = [_hash(text) if text else -1 for text in _texts(trace, "comms_id")]
    codes: dict[Kind, int] = {}
    kind = [codes.setdefault(kind, len(codes)) for kind in _kinds(profile, rows, source)]
    return Calls(
        rank_index=np.zeros(len(rows), np.int64),
        begin=begin,
        end=begin + trace.dur[rows],
        launch=np.where(launch >= 0, trace.ts[launch] + trace.base_ns, -1),
        seq=codes_of(trace, "collective_seq", source),
        kind=np.array(kind, np.int64),
        comms=np.array(hashes, np.int64)[codes_of(trace, "comms_id", source)],
        kinds=list(codes),
    )


def _texts(trace: Trace, column: str) -> list[str]:
    """Return the texts of a column by their codes; code -1 is ""."""
    return [*(trace.texts.get(column) or ()), ""]


def _hash(text: str) -> int:
    """Return a number that is the same on every rank."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def _described_by(trace: Trace, rows: Int64s) -> Int64s:
    """Return the slice that has torch's description of each: itself, or that of its call; itself where none has."""
    named = host_slices(trace, PARAM_COMMS.__eq__)
    by_id = dict(zip(trace.external_id[named].tolist(), named.tolist()))
    described = codes_of(trace, "collective", rows) >= 0
    ids = zip(trace.external_id[rows].tolist(), described.tolist(), rows.tolist())
    source = np.array([row if is_own or id < 0 else by_id.get(id, row) for id, is_own, row in ids], np.int64)
    call = _coalesced_calls(trace, rows)
    return np.where(call >= 0, call, source)


def _coalesced_calls(trace: Trace, rows: Int64s) -> Int64s:
    """Return the call that each of these kernels runs, where it is the only one coalesced into it; otherwise -1.

    NCCL runs several calls of c10d as one kernel for `batch_isend_irecv`, pipelines and `_coalescing_manager`. torch
    records with such a kernel only that it was coalesced: what it does is read off the calls before it on its thread.
    """
    label = first_ancestor(
        trace.parent, trace.launch_of()[rows], mask_of(trace.names, is_coalesced)[trace.name]
    )
    if not (label >= 0).any():
        return label
    labels, calls = host_slices(trace, is_coalesced), _undelivered_calls(trace)
    call_of_label: dict[int, int] = {}
    for track in np.unique(trace.track[label[label >= 0]]):
        own_labels, own_calls = labels[trace.track[labels] == track], calls[trace.track[calls] == track]
        ends = np.searchsorted(trace.ts[own_calls], trace.ts[own_labels]).tolist()
        for row, (first, last) in zip(own_labels.tolist(), pairwise([0, *ends])):
            if last - first == 1:
                call_of_label[row] = int(own_calls[last - 1])
    return np.array([call_of_label.get(row, -1) for row in label.tolist()], np.int64)


def _undelivered_calls(trace: Trace) -> Int64s:
    """Return what c10d recorded of calls that move data and that it did not give to the back end one by one."""
    calls = host_slices(trace, PARAM_COMMS.__eq__)
    moving = np.array([moves_data(text) for text in _texts(trace, "collective")])
    calls = calls[moving[codes_of(trace, "collective", calls)]]
    single = host_slices(trace, lambda name: collective(name) is not None and not is_coalesced(name))
    return np.asarray(calls[~np.isin(calls, trace.parent[single])])


def _gloo_calls(trace: Trace, rows: Int64s) -> Int64s:
    """Return the call of c10d behind each of Gloo's, in order; itself where calls were not recorded.

    Nesting does not show it: the threads that run Gloo's may begin them inside another call.
    """
    calls = host_slices(trace, is_group_call)
    calls = calls[np.argsort(trace.ts[calls], kind="stable")]
    operations = np.array([operation_of(name) for name in trace.names], str)
    of_call, of_row = operations[trace.name[calls]], operations[trace.name[rows]]
    called: Int64s = rows.copy()
    for operation in set(of_row.tolist()):
        indices = np.flatnonzero(of_row == operation)
        candidates = calls[of_call == operation][: len(indices)]
        if len(candidates) == len(indices) and (trace.ts[candidates] <= trace.ts[rows[indices]]).all():
            called[indices] = candidates
    return called


def _kinds(profile: Profile, rows: Int64s, source: Int64s) -> list[Kind]:
    """Return what each of `rows` is; source: the slice that describes it."""
    trace, only = profile.trace, _only_group(profile)
    labels = [trace.names[name] for name in trace.name[collective_labels(trace, rows)]]

    def text(column: str) -> Iterable[str]:
        texts = _texts(trace, column)
        return (texts[code] for code in codes_of(trace, column, source).tolist())

    def number(column: str) -> Iterable[int]:
        return map(int, codes_of(trace, column, source))

    return [
        Kind(
            operation=(operation := operation_of(word or label)),
            group=Group(group, _ranks(ranks)) if group else only if _is_certain(word, label) else None,
            dtype=dtype,
            message_bytes=message_bytes(operation, sent * size, received * size)
            if (size := element_bytes(dtype)) and sent >= 0
            else -1,
            source=sender,
            destination=receiver,
        )
        for word, label, group, ranks, dtype, sent, received, sender, receiver in zip(
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


def collective_labels(trace: Trace, rows: Int64s) -> Int64s:
    """Return the innermost label of a collective around the launch of each; the row itself where there is none."""
    launch = trace.launch_of()[rows]
    is_label = mask_of(trace.names, lambda name: collective(name) is not None)[trace.name]
    label = first_ancestor(trace.parent, np.where(launch >= 0, launch, rows), is_label)
    return np.where(label >= 0, label, rows)


def _is_certain(word: str, label: str) -> bool:
    """Whether torch recorded what it is. A kernel's name is not enough, and coalesced calls are of no one kind."""
    return bool(word or collective(label)) and operation_of(word or label) != "other"


def _ranks(text: str) -> tuple[int, ...]:
    """Parse "[0, 1]"; () where it is not that: torch shortens long lists."""
    try:
        return _numbers(json.loads(text or "[]"))
    except json.JSONDecodeError:
        return ()


def _numbers(ranks: object) -> tuple[int, ...]:
    """Return () for anything but a list of numbers."""
    if not isinstance(ranks, list) or not all(isinstance(rank, int) for rank in ranks):
        return ()
    return tuple(ranks)


def _only_group(profile: Profile) -> Group | None:
    """Return the process group of calls that do not name theirs, where the job has only one."""
    config = profile.trace.distributed.get("pg_config")
    if not isinstance(config, list) or len(config) != 1 or not isinstance(config[0], dict):
        return None
    return Group(str(config[0].get("pg_name", "")), _numbers(config[0].get("ranks")))
