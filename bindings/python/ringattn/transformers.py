"""ringattn for transformers: attn_implementation="ringattn", and what shards a model's inputs and gathers its outputs.

    ringattn.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="ringattn")
    with ringattn.transformers.Ring(comm, seq=input_ids.shape[1]) as ring:
        out = model(**ring.inputs(input_ids, labels=input_ids))     # this rank's tokens; loss: this rank's part
        out.loss.backward()                                         # gradients: sum them over the ranks

What the ring cannot honour is refused: padding masks, masks given as tensors, dropout, caches, soft caps, sinks.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator

import torch
import transformers
from transformers.masking_utils import AttentionMaskInterface

from . import torch as _torch
from .comm import Comm
from .sharding import Sharding, next_token_labels

__all__ = ["NAME", "Ring", "cu_seqlens_of", "register"]

NAME = "ringattn"
_current: contextvars.ContextVar[Ring | None] = contextvars.ContextVar("ringattn_ring", default=None)


def cu_seqlens_of(position_ids: torch.Tensor) -> list[int]:
    """Where packed documents end, from position ids of one whole row: each document begins at 0."""
    row = position_ids.reshape(-1)
    if position_ids.dim() > 1 and position_ids.shape[0] != 1:
        raise ValueError(
            f"position_ids has shape {tuple(position_ids.shape)}; expected one row: packed documents need batch 1"
        )
    starts = torch.nonzero(row == 0).flatten().tolist()
    cu = [*starts, row.numel()]
    want = torch.cat([torch.arange(b - a) for a, b in zip(cu, cu[1:])]) if starts else torch.empty(0)
    if row.numel() and (starts[:1] != [0] or not torch.equal(row.cpu().long(), want)):
        raise ValueError(
            "position_ids do not count 0, 1, 2 ... within each document; expected the whole row, before it is cut"
        )
    return cu


class Ring:
    """How the sequence of a model's inputs lies on the ranks of a comm; while it is entered, models attend over it.

    seq: tokens of a row over all ranks. position_ids: of the whole row, for packed documents (or cu_seqlens)."""

    def __init__(
        self,
        comm: Comm,
        seq: int,
        *,
        partition: str = "zigzag",
        stripe: int = 0,
        cu_seqlens=None,
        position_ids: torch.Tensor | None = None,
        max_sequences: int = 0,
    ):
        if position_ids is not None:
            if cu_seqlens is not None:
                raise ValueError("cu_seqlens and position_ids are both given; expected one of them")
            cu_seqlens = cu_seqlens_of(position_ids)
        self.comm, self.max_sequences = comm, max_sequences
        self.sharding = Sharding(seq, comm.world_size, partition=partition, stripe=stripe, cu_seqlens=cu_seqlens)
        self.positions = torch.from_numpy(self.sharding.positions(comm.rank))[None]
        self._tokens: list[contextvars.Token] = []

    def __enter__(self) -> Ring:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_) -> None:
        _current.reset(self._tokens.pop())

    def shard(self, whole: torch.Tensor, axis: int = 1) -> torch.Tensor:
        """This rank's part of a whole tensor."""
        return self.sharding.shard(whole, self.comm.rank, axis)

    def inputs(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None, ignore_index: int = -100) -> dict:
        """Keyword arguments for the model: this rank's ids, positions and labels, out of the whole ones [batch, seq].

        Labels are shifted before they are cut, and the loss is divided by the labels of all ranks: a rank's loss is its
        part of the whole one, and losses and gradients add up over the ranks."""
        batch, ids = input_ids.shape[0], self.shard(input_ids)
        made = dict(input_ids=ids, position_ids=self.positions.expand(batch, -1).to(ids.device), use_cache=False)
        if labels is not None:
            shifted = next_token_labels(labels, cu_seqlens=self.sharding.cu_seqlens, ignore_index=ignore_index)
            count = int((shifted[:, : self.sharding.total] != ignore_index).sum())
            own = self.shard(shifted)
            made |= dict(labels=own, shift_labels=own, num_items_in_batch=max(1, count))
        return made

    def gather(self, local: torch.Tensor, axis: int = 1, group=None) -> torch.Tensor:
        """The whole tensor on every rank of a torch process group, from each rank's part. Not differentiable."""
        import torch.distributed as dist

        lengths = [self.sharding.local_length(rank) for rank in range(self.comm.world_size)]
        moved = local.detach().movedim(axis, 0)
        if moved.shape[0] != lengths[self.comm.rank]:
            raise ValueError(
                f"axis {axis} has {moved.shape[0]} entries; expected {lengths[self.comm.rank]}, this rank's tokens"
            )
        own = moved.new_zeros((max(lengths), *moved.shape[1:]))
        own[: moved.shape[0]] = moved
        parts = [torch.empty_like(own) for _ in lengths]
        dist.all_gather(parts, own, group=group)
        return self.sharding.unshard([part[:n].movedim(0, axis) for part, n in zip(parts, lengths)], axis)


def _refuse(name: str, value, expected: str):
    raise ValueError(f'{name} is {value}; attn_implementation="{NAME}" expects {expected}')


def _check(ring: Ring | None, query, key, attention_mask, dropout, options) -> Ring:
    if ring is None:
        raise RuntimeError(
            "no ring is entered; expected `with ringattn.transformers.Ring(comm, seq=...):` around the model's call"
        )
    if attention_mask is not None:
        _refuse(
            "attention_mask",
            f"a tensor of shape {tuple(attention_mask.shape)}",
            "None: documents come by Ring(position_ids=...)",
        )
    if dropout:
        _refuse("dropout", dropout, "0: a ring has no common random state")
    for name in ("softcap", "s_aux", "position_bias", "head_mask"):
        if options.get(name) is not None:
            _refuse(name, "given", "None: not supported")
    if options.get("output_attentions"):
        _refuse("output_attentions", True, "False: probabilities are never kept")
    if options.get("cu_seq_lens_q") is not None:
        _refuse("cu_seq_lens_q", "given", "None: documents come by Ring(cu_seqlens=...)")
    want = ring.positions.shape[1]
    if query.shape[2] != want:
        _refuse(
            "the sequence",
            f"{query.shape[2]} tokens on rank {ring.comm.rank}",
            f"{want}, this rank's part (ring.inputs)",
        )
    if key.shape[2] != want:
        _refuse("the cache", f"{key.shape[2]} keys for {want} queries", "no cached keys (use_cache=False)")
    ids = options.get("position_ids")
    if ids is not None and not bool((ids.cpu() == ring.positions).all()):
        _refuse(
            "position_ids",
            "not this rank's",
            "ring.positions, its tokens' positions in the whole sequence (ring.inputs)",
        )
    return ring


def _attention(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **options,
):
    ring = _check(_current.get(), query, key, attention_mask, dropout, options)
    cut = ring.sharding
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = None
    if sliding_window is not None:  # that many keys, the query's own included
        window = (sliding_window - 1, None if causal else sliding_window - 1)
    o = _torch.attend(
        query, key, value, comm=ring.comm, mask="causal" if causal else "full", window=window, scale=scaling,
        partition=cut.partition, stripe=cut.stripe, scope=cut.scope, seq=cut.seq, cu_seqlens_q=cut.cu_seqlens,
        max_sequences=ring.max_sequences, layout="bhsd",
    )  # fmt: skip
    return o.transpose(1, 2), None


# What a mask may be made of, by the names of transformers' functions. Packing is among them because shards look packed:
# their positions have gaps. Windows reach _attention as numbers, documents through the ring.
_HONOURED = {
    "and_masks",
    "bidirectional_mask_function",
    "causal_mask_function",
    "packed_sequence_mask_function",
    "remap_positions_for_packed_sequence",
    "sliding_window_bidirectional_overlay",
    "sliding_window_overlay",
}


def _parts(function) -> Iterator[str]:
    """Names of the functions that a mask function is made of."""
    yield getattr(function, "__qualname__", repr(function)).split(".")[0]
    for cell in getattr(function, "__closure__", None) or ():
        held = cell.cell_contents
        for inner in held if isinstance(held, (list, tuple)) else (held,):
            if callable(inner) and not isinstance(inner, torch.Tensor):
                yield from _parts(inner)


def _mask(*, attention_mask=None, mask_function=None, use_vmap: bool = False, **_):
    """The mask that models ask for before their layers. The ring has its own, by positions; what else it would have to
    honour is refused here."""
    if attention_mask is not None and not bool(attention_mask.all()):
        hidden = int((attention_mask == 0).sum())
        _refuse(
            "attention_mask",
            f"a padding mask that hides {hidden} tokens",
            "no padding: pack documents, or give rows of one length",
        )
    unknown = sorted(set(_parts(mask_function)) - _HONOURED) if mask_function is not None else []
    if use_vmap or unknown:
        _refuse(
            "the model's mask function",
            f"made of {', '.join(unknown)}" if unknown else "a custom one",
            "a causal, full or sliding window mask",
        )


def register() -> None:
    """Makes "ringattn" an attn_implementation of transformers. A second call does nothing."""
    transformers.AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
