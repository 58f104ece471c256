"""Arrays of any kind: how they become tensors, and how results are made in the caller's own kind."""

from __future__ import annotations

import sys

import numpy as np

from . import core

DTYPES = {
    "float32": core.DTYPE_F32, "float16": core.DTYPE_F16, "bfloat16": core.DTYPE_BF16,
    "int32": core.DTYPE_I32, "int64": core.DTYPE_I64,
}  # fmt: skip
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}

# Axes of an array, a letter each. "thd" is a packed row without a batch axis.
LAYOUTS = {"bshd": "bshd", "bhsd": "bhsd", "sbhd": "sbhd", "thd": "shd"}


def axes_of(layout: str) -> str:
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; expected one of {', '.join(LAYOUTS)}")
    return LAYOUTS[layout]


def lse_axes(axes: str) -> str:
    return "bhs" if "b" in axes else "hs"


def dtype_number(name: str, value) -> int:
    """A dtype given as a name, or as numpy's, torch's or jax's own object; 0 for None."""
    if value is None:
        return 0
    text = (
        value
        if isinstance(value, str)
        else getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)
    )
    text = text.removeprefix("torch.")
    if text not in DTYPES:
        raise ValueError(f"{name} is {value!r}; expected float32, float16 or bfloat16")
    return DTYPES[text]


def view(array, name: str, axes: str, *, writable: bool = False, lse: bool = False, dtype: int = 0) -> core.View:
    """The memory of an array as a tensor. `dtype`: what 16-bit unsigned integers stand for."""
    if isinstance(array, core.View):
        return array
    if _is(array, "torch", "Tensor") and array.is_neg():  # its memory holds the negative of its values
        if writable:
            raise ValueError(f"{name} is a negated view; expected memory that holds its own values")
        array = array.resolve_neg()
    return core.View(array, name, int(writable), axes, "bhsd" if lse else "bshd", dtype)


def _is(array, module: str, kind: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(array, getattr(loaded, kind))


def _numpy_dtype(number: int, like):
    if number == core.DTYPE_BF16:
        if getattr(getattr(like, "dtype", None), "name", "") == "uint16":
            return np.uint16  # the caller's own way to hold bfloat16
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError(
                "a bfloat16 result for numpy needs the package ml_dtypes; or ask for dtype_out='float32'"
            ) from None
        return ml_dtypes.bfloat16
    return np.dtype(DTYPE_NAMES[number])


def empty(shape, dtype: int, like):
    """Room for a result, in the kind of `like`. jax arrays cannot be written: theirs is numpy until `finish`."""
    if _is(like, "torch", "Tensor"):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, DTYPE_NAMES[dtype]))
    return np.empty(shape, dtype=_numpy_dtype(dtype, like))


def finish(array, like):
    """A result in the kind of `like`."""
    if _is(like, "jax", "Array") and isinstance(array, np.ndarray):
        return sys.modules["jax"].numpy.asarray(array)
    return array


def shape_for(axes: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[axis] for axis in axes)


def integers(name: str, values) -> list[int]:
    """A list of integers out of any array or sequence of them; floats are refused."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    result = []
    for value in values:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} has the entry {value!r}; expected integers")
        result.append(value.__index__())
    return result
