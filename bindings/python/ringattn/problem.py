"""What is to be computed: `Problem`, decided once, and `Call`, what may change from call to call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from . import core
from ._arrays import DTYPE_NAMES, dtype_number, integers

MASKS = {"full": core.MASK_FULL, "causal": core.MASK_CAUSAL}
PARTITIONS = {
    "contiguous": core.PARTITION_CONTIGUOUS, "striped": core.PARTITION_STRIPED,
    "zigzag": core.PARTITION_ZIGZAG, "explicit": core.PARTITION_EXPLICIT,
}  # fmt: skip
QUERY_CUTS = {"auto": core.QUERY_CUT_AUTO, "like_keys": core.QUERY_CUT_LIKE_KEYS, "by_index": core.QUERY_CUT_BY_INDEX}
SCOPES = {"capacity": core.SCOPE_CAPACITY, "call": core.SCOPE_CALL, "document": core.SCOPE_DOCUMENT}
SCHEDULES = {"auto": core.SCHEDULE_AUTO, "ring": core.SCHEDULE_RING}
ACCURACIES = {"default": core.ACCURACY_DEFAULT, "exact": core.ACCURACY_EXACT}
AXES = {"query": core.AXIS_QUERY, "key": core.AXIS_KEY}

Run = tuple[int, int, int]


def chosen(name: str, value, options: dict[str, int]) -> int:
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, options))}")
    return options[value]


def _window(name: str, value) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; expected an integer or None (unbounded)")
    return value.__index__()


def _runs(name: str, runs) -> tuple[Run, ...] | None:
    if runs is None:
        return None
    made = []
    for run in runs:
        numbers = integers(name, run)
        if len(numbers) not in (2, 3):
            raise ValueError(f"{name} has the entry {run!r}; expected (first, length) or (first, length, stride)")
        made.append((*numbers, 0)[:3])
    return tuple(made)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One attention problem, at capacity; equal on all ranks (but for the runs of an explicit partition).

    seq_q, seq_k: queries and keys of a row over all ranks; the most that any call may have.
    heads, kv_heads: query heads, and key/value heads (None = the same; query head h uses h // (heads // kv_heads)).
    head_dim_qk, head_dim_v: of q and k; of v and o (None = the same).
    dtype, dtype_out, dtype_grad: "float32", "float16", "bfloat16"; of q, k, v; of o; of the gradients (None = dtype).
    mask: "full" or "causal" (bottom-right aligned). window_left, window_right: keys before and after a query's own
    position that it sees; None = unbounded.
    scale: None = 1 / sqrt(head_dim_qk).
    partition: "contiguous", "striped" (stripe: positions of a stripe), "zigzag" or "explicit" (runs_k, runs_q: this
    rank's own (first, length[, stride])).
    scope: what the partition cuts: "capacity", "call" or "document". query_cut: "auto", "like_keys" or "by_index".
    max_sequences: most documents of one call. backward: gradients are wanted too. trace: record events.
    """

    seq_q: int
    seq_k: int
    heads: int
    head_dim_qk: int
    batch: int = 1
    kv_heads: int | None = None
    head_dim_v: int | None = None
    dtype: str = "float32"
    dtype_out: str | None = None
    dtype_grad: str | None = None
    mask: str = "full"
    window_left: int | None = None
    window_right: int | None = None
    scale: float | None = None
    partition: str = "contiguous"
    stripe: int = 0
    query_cut: str = "auto"
    scope: str = "capacity"
    schedule: str = "auto"
    accuracy: str = "default"
    max_sequences: int = 0
    runs_k: Sequence[Sequence[int]] | None = None
    runs_q: Sequence[Sequence[int]] | None = None
    backward: bool = False
    trace: bool = False

    def __post_init__(self):
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731 - frozen
        for name in ("dtype", "dtype_out", "dtype_grad"):
            number = dtype_number(name, getattr(self, name))
            put(name, DTYPE_NAMES[number] if number else None)
        if self.dtype is None:
            raise ValueError("dtype is None; expected float32, float16 or bfloat16")
        put("runs_k", _runs("runs_k", self.runs_k))
        put("runs_q", _runs("runs_q", self.runs_q))
        if self.scale is not None:
            put("scale", float(self.scale))
            if self.scale == 0:  # the library's word for "default"
                raise ValueError("scale is 0; expected a number above 0, or None for 1 / sqrt(head_dim_qk)")
        for name in (
            "seq_q",
            "seq_k",
            "heads",
            "head_dim_qk",
            "batch",
            "kv_heads",
            "head_dim_v",
            "stripe",
            "max_sequences",
        ):
            value = getattr(self, name)
            if value is None and name in ("kv_heads", "head_dim_v"):
                continue
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"{name} is {value!r}; expected an integer")
            put(name, value.__index__())
            if value == 0 and name in ("kv_heads", "head_dim_v"):
                raise ValueError(f"{name} is 0; expected at least 1, or None")

    def replace(self, **changes) -> Problem:
        """The same problem with some fields changed."""
        return dataclasses.replace(self, **changes)

    def _desc(self) -> tuple[core.plan_desc, list]:
        """The description for the library, and what has to live as long as it."""
        d, keep = core.plan_desc(), []
        for name in ("batch", "seq_q", "seq_k", "heads", "head_dim_qk", "stripe", "max_sequences"):
            setattr(d, name, getattr(self, name))
        d.kv_heads = self.kv_heads or 0
        d.head_dim_v = self.head_dim_v or 0
        d.dtype, d.dtype_out, d.dtype_grad = (
            dtype_number("dtype", x) for x in (self.dtype, self.dtype_out, self.dtype_grad)
        )
        d.mask = chosen("mask", self.mask, MASKS)
        for side, bit in (("window_left", core.MASK_WINDOW_LEFT), ("window_right", core.MASK_WINDOW_RIGHT)):
            if getattr(self, side) is not None:
                d.mask |= bit
                setattr(d, side, _window(side, getattr(self, side)))
        d.scale = self.scale or 0.0
        d.partition = chosen("partition", self.partition, PARTITIONS)
        d.query_cut = chosen("query_cut", self.query_cut, QUERY_CUTS)
        d.scope = chosen("scope", self.scope, SCOPES)
        d.schedule = chosen("schedule", self.schedule, SCHEDULES)
        d.accuracy = chosen("accuracy", self.accuracy, ACCURACIES)
        d.flags = (core.PLAN_BACKWARD if self.backward else 0) | (core.PLAN_TRACE if self.trace else 0)
        for name in ("runs_k", "runs_q"):
            runs = getattr(self, name)
            if runs is not None:
                keep.append(core.Int64s([number for run in runs for number in run]))
                setattr(d, name, keep[-1])
                setattr(d, name + "_count", len(runs))
        return d, keep


class Call:
    """What may change from call to call; equal on all ranks.

    cu_seqlens_q, cu_seqlens_k: where sequences end, cumulative, from 0 (None for k = like q). With batch 1 they are
    documents, packed one after the other; with a larger batch, the lengths of its rows.
    query_offset: position of each sequence's first query; None = keys - queries (bottom-right alignment).
    """

    def __init__(self, cu_seqlens_q=None, cu_seqlens_k=None, query_offset: int | None = None):
        self._keep: list = []
        self._call = core.call()
        if cu_seqlens_q is None and cu_seqlens_k is not None:
            raise ValueError("cu_seqlens_k is given without cu_seqlens_q; expected both, or cu_seqlens_q alone")
        if cu_seqlens_q is not None:
            self._sequences(integers("cu_seqlens_q", cu_seqlens_q), cu_seqlens_k)
        if query_offset is not None:
            self._call.flags |= core.CALL_QUERY_OFFSET
            self._call.query_offset = _window("query_offset", query_offset)

    def _sequences(self, cu_q: list[int], cu_k) -> None:
        if not cu_q:
            raise ValueError("cu_seqlens_q is empty; expected 0 and the end of each sequence")
        self._call.flags |= core.CALL_SEQUENCES
        self._call.sequences = len(cu_q) - 1
        self._keep = [core.Int64s(cu_q)]
        self._call.cu_q = self._keep[0]
        if cu_k is not None:
            numbers = integers("cu_seqlens_k", cu_k)
            if len(numbers) != len(cu_q):
                raise ValueError(
                    f"cu_seqlens_k has {len(numbers)} entries; expected {len(cu_q)}, as many as cu_seqlens_q"
                )
            self._keep.append(core.Int64s(numbers))
            self._call.cu_k = self._keep[1]


def call_pointer(call: Call | None):
    if call is not None and not isinstance(call, Call):
        raise TypeError(f"call is {call!r}; expected a ringattn.Call or None")
    return None if call is None else call._call
