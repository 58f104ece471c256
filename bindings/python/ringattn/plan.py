"""Plans: one problem, decided once, run many times."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _arrays, core
from ._execute import Backward, Forward
from ._handles import Context, Handle, default_context, in_use
from .comm import Comm, Group, answering_peers, interruptible
from .errors import Error
from .problem import AXES, Call, Problem, call_pointer, chosen
from .request import Request


@dataclass(frozen=True)
class Support:
    """Whether a problem can run here; false with the reason."""

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


def supports(problem: Problem, context: Context | None = None) -> Support:
    """Can a plan for this problem run here?"""
    desc, keep = problem._desc()
    try:
        core.supports((context or default_context())._pointer, desc)
    except Error as error:
        return Support(False, error.message)
    finally:
        del keep
    return Support(True)


def _fields(struct) -> dict[str, Any]:
    names = [name for name in dir(type(struct)) if isinstance(getattr(type(struct), name), property)]
    return {name: getattr(struct, name) for name in names if name not in ("thisown", "struct_size")}


class PlanBase(Handle):
    """What a plan tells, whether it can be executed or not. Any thread may ask."""

    problem: Problem
    rank: int
    world_size: int

    def info(self, call: Call | None = None) -> dict[str, Any]:
        """Figures for the values of one call: lengths, steps, bytes, work; the fields of ringattn_plan_info."""
        out = core.plan_info()
        core.plan_get_info(self._pointer, call_pointer(call), out)
        return _fields(out)

    def describe(self, call: Call | None = None) -> str:
        """The plan in one line, in the grammar of the command line."""
        return core.plan_describe(self._pointer, call_pointer(call), core.DESCRIBE_TEXT)

    def operations(self, call: Call | None = None) -> dict[str, Any]:
        """The whole description: kernel, and of every rank its figures, its operations and their dependencies."""
        return json.loads(core.plan_describe(self._pointer, call_pointer(call), core.DESCRIBE_JSON))

    def local_length(self, axis: str = "query", rank: int | None = None, row: int = 0, call: Call | None = None) -> int:
        """How many tokens of a row of the batch a rank (None = this one) holds."""
        rank = self.rank if rank is None else rank
        return core.plan_local_length(self._pointer, chosen("axis", axis, AXES), rank, row, call_pointer(call))

    def positions(
        self, axis: str = "query", rank: int | None = None, row: int = 0, call: Call | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(index, position) of a rank's tokens, int64 [local]: index in the row, for labels and gathering; position in
        its own sequence, query offset included, for RoPE."""
        rank = self.rank if rank is None else rank
        index, position = core.plan_positions(self._pointer, chosen("axis", axis, AXES), rank, row, call_pointer(call))
        return np.frombuffer(index, dtype=np.int64), np.frombuffer(position, dtype=np.int64)

    def shard(
        self, whole, axis: str = "query", rank: int | None = None, call: Call | None = None, layout: str = "bshd"
    ):
        """This rank's tokens out of a whole array ([batch, seq, head, dim] in the order of `layout`); a copy."""
        rank = self.rank if rank is None else rank
        axes, number = _arrays.axes_of(layout), chosen("axis", axis, AXES)
        source = _arrays.view(whole, "whole", axes)
        sizes = dict(zip("bshd", source.shape()))
        sizes["s"] = max(self.local_length(axis, rank, row, call) for row in range(max(1, sizes["b"])))
        local = _arrays.empty(_arrays.shape_for(axes, sizes), source.dtype(), whole)
        if hasattr(local, "zero_"):
            local.zero_()
        else:
            local[...] = 0
        core.shard(
            self._pointer, number, rank, call_pointer(call), source, _arrays.view(local, "local", axes, writable=True)
        )
        return _arrays.finish(local, whole)

    def unshard(self, shards: Sequence, axis: str = "query", call: Call | None = None, layout: str = "bshd"):
        """The whole array from the shards of all ranks, in rank order; tokens that nobody holds are 0."""
        axes, number = _arrays.axes_of(layout), chosen("axis", axis, AXES)
        if len(shards) != self.world_size:
            raise ValueError(f"shards has {len(shards)} entries; expected {self.world_size}, one a rank")
        views = [_arrays.view(shard, f"shards[{rank}]", axes) for rank, shard in enumerate(shards)]
        sizes = dict(zip("bshd", views[0].shape()))
        sizes["s"] = self.problem.seq_q if axis == "query" else self.problem.seq_k
        whole = _arrays.empty(_arrays.shape_for(axes, sizes), views[0].dtype(), shards[0])
        if hasattr(whole, "zero_"):
            whole.zero_()
        else:
            whole[...] = 0
        target = _arrays.view(whole, "whole", axes, writable=True)
        for rank, source in enumerate(views):
            core.unshard(self._pointer, number, rank, call_pointer(call), source, target)
        return _arrays.finish(whole, shards[0])


class Preview(PlanBase):
    """A plan for any rank of any world that cannot be executed, but tells all the rest: no comm, nothing is sent.

    lends: the transport lends memory instead of copying (ranks of one process)."""

    def __init__(
        self, problem: Problem, rank: int, world_size: int, *, lends: bool = False, context: Context | None = None
    ):
        context = context or default_context()
        desc, keep = problem._desc()
        facts = core.facts()
        facts.lends = int(lends)
        pointer = core.plan_preview(context._pointer, desc, rank, world_size, facts)
        del keep
        super().__init__(pointer, core.plan_destroy, context)
        self.problem, self.rank, self.world_size = problem, rank, world_size


class Plan(PlanBase):
    """A problem on one comm. Making it is collective, like forward and backward: every rank makes the same calls in
    the same order, each on its own comm."""

    def __init__(self, comm: Comm, problem: Problem):
        with answering_peers(comm):
            desc, keep = problem._desc()
        with in_use(comm):
            pointer = interruptible(lambda: core.plan_create(comm._pointer, desc), lambda: comm.abort("interrupted"))
        del keep
        self._made(pointer, comm, problem)

    def _made(self, pointer, comm: Comm, problem: Problem) -> Plan:
        super().__init__(pointer, core.plan_destroy, comm)
        self.comm, self.problem, self.rank, self.world_size = comm, problem, comm.rank, comm.world_size
        return self

    def times(self) -> dict[str, int]:
        """Where the time of the last execution went; the fields of ringattn_times."""
        out = core.times()
        core.plan_get_times(self._pointer, out)
        return _fields(out)

    def events(self) -> list[dict[str, int]]:
        """What happened when in the last execution of a plan with trace=True."""
        names = ("kind", "worker", "peer", "block", "item", "start_ns", "end_ns", "bytes")
        events, _ = core.plan_trace(self._pointer)
        return [dict(zip(names, event)) for event in events]

    def forward(
        self,
        q,
        k,
        v,
        *,
        call: Call | None = None,
        layout: str = "bshd",
        lse: bool = True,
        out=None,
        out_lse=None,
        dtype: str | None = None,
    ):
        """(o, lse) of this rank's shard. Collective; blocks.

        q [batch, local q, heads, head_dim_qk], k [batch, local k, kv_heads, head_dim_qk], v [batch, local k, kv_heads,
        head_dim_v], in the order of `layout` ("bshd", "bhsd", "sbhd", or "thd" without batch); any strides from 0 on, any kind of
        array. o is like q with head_dim_v; lse [batch, heads, local q], float32, natural log (None with lse=False).
        out, out_lse: write there instead of into new arrays. dtype="bfloat16": arrays of uint16 hold that.
        """
        return self.start_forward(
            q, k, v, call=call, layout=layout, lse=lse, out=out, out_lse=out_lse, dtype=dtype
        ).wait()

    def start_forward(
        self,
        q,
        k,
        v,
        *,
        call: Call | None = None,
        layout: str = "bshd",
        lse: bool = True,
        out=None,
        out_lse=None,
        dtype: str | None = None,
    ) -> Request:
        """forward as a Request, whose wait() gives (o, lse). Returns at once."""
        arrays = dict(q=q, k=k, v=v, out=out, out_lse=out_lse)
        return PlanGroup([self])._start_forward(_each_in_a_list(arrays), call, layout, lse, dtype, _only)

    def backward(
        self,
        q,
        k,
        v,
        o,
        lse,
        d_o,
        *,
        d_lse=None,
        call: Call | None = None,
        layout: str = "bshd",
        dtype: str | None = None,
    ):
        """(d_q, d_k, d_v) from what forward took and gave, and the gradients of o and lse. Collective; blocks."""
        return self.start_backward(q, k, v, o, lse, d_o, d_lse=d_lse, call=call, layout=layout, dtype=dtype).wait()

    def start_backward(
        self,
        q,
        k,
        v,
        o,
        lse,
        d_o,
        *,
        d_lse=None,
        call: Call | None = None,
        layout: str = "bshd",
        dtype: str | None = None,
    ) -> Request:
        """backward as a Request, whose wait() gives (d_q, d_k, d_v). Returns at once."""
        arrays = dict(q=q, k=k, v=v, o=o, lse=lse, d_o=d_o, d_lse=d_lse)
        return PlanGroup([self])._start_backward(_each_in_a_list(arrays), call, layout, dtype, _only)

    def __repr__(self) -> str:
        return f"<ringattn.Plan rank {self.rank} of {self.world_size}: {'closed' if self.closed else self.describe()}>"


class PlanGroup(Sequence):
    """Plans of several ranks of this process, driven by one thread: each array becomes a list, one entry a rank."""

    def __init__(self, plans: Sequence[Plan]):
        self._plans = tuple(plans)

    @classmethod
    def create(cls, group: Group, problems: Problem | Sequence[Problem]) -> PlanGroup:
        """A plan on every comm of a group; one problem for all, or one each (explicit partitions)."""
        each = [problems] * len(group) if isinstance(problems, Problem) else list(problems)
        if len(each) != len(group):
            raise ValueError(f"problems has {len(each)} entries; expected {len(group)}, one a rank")
        made = [problem._desc() for problem in each]
        abort = lambda: [comm.abort("interrupted") for comm in group]  # noqa: E731
        with in_use(*group):
            pointers = interruptible(
                lambda: core.plan_create_array([comm._pointer for comm in group], [desc for desc, _ in made]), abort
            )
        return cls([Plan.__new__(Plan)._made(*entry) for entry in zip(pointers, group, each)])

    def __len__(self) -> int:
        return len(self._plans)

    def __getitem__(self, rank):
        return self._plans[rank]

    def close(self) -> None:
        for plan in self._plans:
            plan.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def forward(
        self,
        q,
        k,
        v,
        *,
        call: Call | None = None,
        layout: str = "bshd",
        lse: bool = True,
        out=None,
        out_lse=None,
        dtype: str | None = None,
    ) -> list[tuple]:
        """[(o, lse), ...], one a rank. See Plan.forward."""
        return self.start_forward(
            q, k, v, call=call, layout=layout, lse=lse, out=out, out_lse=out_lse, dtype=dtype
        ).wait()

    def start_forward(
        self,
        q,
        k,
        v,
        *,
        call: Call | None = None,
        layout: str = "bshd",
        lse: bool = True,
        out=None,
        out_lse=None,
        dtype: str | None = None,
    ) -> Request:
        """forward as one Request for all; its wait() gives what forward returns."""
        return self._start_forward(dict(q=q, k=k, v=v, out=out, out_lse=out_lse), call, layout, lse, dtype, list)

    def backward(
        self,
        q,
        k,
        v,
        o,
        lse,
        d_o,
        *,
        d_lse=None,
        call: Call | None = None,
        layout: str = "bshd",
        dtype: str | None = None,
    ) -> list[tuple]:
        """[(d_q, d_k, d_v), ...], one a rank. See Plan.backward."""
        return self.start_backward(q, k, v, o, lse, d_o, d_lse=d_lse, call=call, layout=layout, dtype=dtype).wait()

    def start_backward(
        self,
        q,
        k,
        v,
        o,
        lse,
        d_o,
        *,
        d_lse=None,
        call: Call | None = None,
        layout: str = "bshd",
        dtype: str | None = None,
    ) -> Request:
        """backward as one Request for all; its wait() gives what backward returns."""
        arrays = dict(q=q, k=k, v=v, o=o, lse=lse, d_o=d_o, d_lse=d_lse)
        return self._start_backward(arrays, call, layout, dtype, list)

    def _start_forward(self, arrays: dict, call, layout: str, lse: bool, dtype: str | None, shape: Callable) -> Request:
        with self._answering_peers(core.forward_array, core.forward_args):
            each = [
                Forward(plan, i, locals_of(i, **arrays), layout, lse, dtype, call)
                for i, plan in enumerate(self._checked(**arrays))
            ]
        return Request(core.forward_array, self, each, lambda: shape(one.results() for one in each))

    def _start_backward(self, arrays: dict, call, layout: str, dtype: str | None, shape: Callable) -> Request:
        with self._answering_peers(core.backward_array, core.backward_args):
            each = [
                Backward(plan, i, locals_of(i, **arrays), layout, dtype, call)
                for i, plan in enumerate(self._checked(**arrays))
            ]
        return Request(core.backward_array, self, each, lambda: shape(one.results() for one in each))

    def _checked(self, **arrays) -> tuple[Plan, ...]:
        for name, entries in arrays.items():
            if entries is not None and len(entries) != len(self):
                raise ValueError(f"{name} has {len(entries)} entries; expected {len(self)}, one a rank")
        return self._plans

    @contextlib.contextmanager
    def _answering_peers(self, start, args):
        """What is refused here must still be heard by the other ranks, or they would wait for this one: the library is
        given arguments that it refuses too."""
        try:
            yield
        except Exception:
            if self._plans and self._plans[0].world_size > len(self):
                with contextlib.suppress(Error):
                    core.request_destroy(start([plan._pointer for plan in self], [args() for _ in self]))
            raise


def locals_of(rank: int, **arrays) -> dict[str, Any]:
    return {name: None if entries is None else entries[rank] for name, entries in arrays.items()}


def _each_in_a_list(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: None if array is None else [array] for name, array in arrays.items()}


def _only(results):
    """Of a group of one."""
    return next(iter(results))
