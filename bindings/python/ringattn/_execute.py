"""One rank's arguments of one execution: arrays in, struct out, and results in the caller's own kind."""

from __future__ import annotations

from . import _arrays, core
from .problem import call_pointer


class _Arguments:
    """Views live as long as this object, so as long as the execution."""

    def __init__(self, plan, rank: int, args, layout: str, dtype: str | None, call):
        self.plan, self.args, self.rank = plan, args, rank
        self.axes = _arrays.axes_of(layout)
        self.dtype = _arrays.dtype_number("dtype", dtype)
        self._views: list = []
        self._call = call
        if call is not None:
            args.call = call_pointer(call)

    def _name(self, name: str) -> str:
        return name if self.plan.world_size == 1 else f"rank {self.plan.rank}: {name}"

    def give(self, name: str, array, *, lse: bool = False, writable: bool = False, dtype: int = 0) -> core.View:
        axes = _arrays.lse_axes(self.axes) if lse else self.axes
        made = _arrays.view(array, self._name(name), axes, lse=lse, writable=writable, dtype=dtype)
        self._views.append(made)
        setattr(self.args, name, made)
        return made

    def make(self, name: str, sizes: dict[str, int], dtype: int, like, *, lse: bool = False):
        axes = _arrays.lse_axes(self.axes) if lse else self.axes
        array = _arrays.empty(_arrays.shape_for(axes, sizes), dtype, like)
        self.give(name, array, lse=lse, writable=True, dtype=self._as(dtype))
        return array

    def _as(self, dtype: int) -> int:
        return self.dtype if dtype == self.dtype else 0


class Forward(_Arguments):
    def __init__(self, plan, rank: int, arrays: dict, layout: str, lse: bool, dtype: str | None, call):
        super().__init__(plan, rank, core.forward_args(), layout, dtype, call)
        problem = plan.problem
        q = self.give("q", arrays["q"], dtype=self.dtype)
        self.give("k", arrays["k"], dtype=self.dtype)
        v = self.give("v", arrays["v"], dtype=self.dtype)
        sizes = dict(zip("bshd", q.shape())) | {"d": v.shape()[3]}
        number = _arrays.dtype_number("dtype_out", problem.dtype_out or problem.dtype)
        self.like, self.o, self.lse = arrays["q"], arrays["out"], arrays["out_lse"]
        if self.o is None:
            self.o = self.make("o", sizes, number, self.like)
        else:
            self.give("o", self.o, writable=True, dtype=self._as(number))
        if self.lse is not None:
            self.give("lse", self.lse, lse=True, writable=True)
        elif lse:
            self.lse = self.make("lse", sizes, core.DTYPE_F32, self.like, lse=True)

    def results(self) -> tuple:
        return _arrays.finish(self.o, self.like), None if self.lse is None else _arrays.finish(self.lse, self.like)


class Backward(_Arguments):
    def __init__(self, plan, rank: int, arrays: dict, layout: str, dtype: str | None, call):
        super().__init__(plan, rank, core.backward_args(), layout, dtype, call)
        problem = plan.problem
        out = _arrays.dtype_number("dtype_out", problem.dtype_out or problem.dtype)
        grad = _arrays.dtype_number("dtype_grad", problem.dtype_grad or problem.dtype)
        views = {name: self.give(name, arrays[name], dtype=self.dtype) for name in ("q", "k", "v")}
        self.give("o", arrays["o"], dtype=self._as(out))
        self.give("lse", arrays["lse"], lse=True)
        self.give("d_o", arrays["d_o"], dtype=self._as(out))
        if arrays["d_lse"] is not None:
            self.give("d_lse", arrays["d_lse"], lse=True)
        self.like = arrays["q"]
        self.made = [
            self.make(f"d_{name}", dict(zip("bshd", views[name].shape())), grad, self.like) for name in ("q", "k", "v")
        ]

    def results(self) -> tuple:
        return tuple(_arrays.finish(array, self.like) for array in self.made)
