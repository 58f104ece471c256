"""A real model over a sharded sequence: SmolLM2-135M prefilled over 4 ranks, then 20 tokens with the sharded keys kept.

    python examples/smollm2_prefill.py

Prefill: tokens are striped over the ranks by the cache's capacity, so that a token's owner never changes; keys and values
go round the ring. Decode: the new token's query is on every rank, each attends the keys that it holds, and the partial
results are merged. Both are compared with transformers' own attention on one rank.
"""

import argparse
import copy

import ringattn
import ringattn.torch
import smollm2
import torch
import torch.distributed as dist
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface


class ShardedCache:
    """This rank's keys and values of every layer, and attention over all ranks' keys."""

    def __init__(self, comm, prompt, capacity):
        self.comm, self.prompt, self.capacity = comm, prompt, capacity
        self.sharding = ringattn.Sharding(capacity, comm.world_size, partition="striped")
        self.held = {}  # layer: (keys, values), [1, local capacity, kv_heads, dim]
        self.length = prompt  # keys of all ranks together

    def local(self, length):
        """How many of the first `length` tokens this rank owns."""
        return int((self.sharding.index(self.comm.rank) < length).sum())

    def attention(self, module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        attend = self.prefill if module.layer_idx not in self.held else self.decode
        return attend(module.layer_idx, q, k, v, scaling), None

    def prefill(self, layer, q, k, v, scaling):
        room = self.local(self.capacity)
        keys, values = (x.new_zeros(1, room, *x.shape[2:]) for x in (k, v))
        keys[:, : k.shape[1]], values[:, : v.shape[1]] = k, v
        self.held[layer] = keys, values
        return ringattn.attend(
            q,
            k,
            v,
            comm=self.comm,
            mask="causal",
            partition="striped",
            seq=self.capacity,
            cu_seqlens_q=[0, self.prompt],
            scale=scaling,
        )

    def decode(self, layer, q, k, v, scaling):
        keys, values = self.held[layer]
        count = self.local(self.length)
        if count > self.local(self.length - 1):  # the new token is this rank's
            keys[:, count - 1], values[:, count - 1] = k[:, 0], v[:, 0]
        o, lse = ringattn.attend(
            q,
            keys,
            values,
            seq=(1, keys.shape[1]),
            cu_seqlens_q=[0, 1],
            cu_seqlens_k=[0, count],
            scale=scaling,
            dtype_out="float32",
            return_lse=True,
        )
        parts = [(torch.empty_like(o), torch.empty_like(lse)) for _ in range(self.comm.world_size)]
        dist.all_gather([part[0] for part in parts], o)
        dist.all_gather([part[1] for part in parts], lse)
        whole = parts[0]
        for part in parts[1:]:
            whole = ringattn.merge(*whole, *part)
        return whole[0].to(q.dtype)


def run_model(model, ids, positions):
    return model(input_ids=ids, position_ids=positions, use_cache=False).logits


def prefill(model, cache, ids):
    """Logits of the whole prompt, on every rank."""
    index = torch.from_numpy(cache.sharding.index(cache.comm.rank))
    own = index[index < cache.prompt]
    local = run_model(model, ids[:, own], own[None])
    gathered = [None] * cache.comm.world_size
    dist.all_gather_object(gathered, (own, local))
    whole = local.new_empty(1, cache.prompt, local.shape[-1])
    for where, part in gathered:
        whole[:, where] = part
    return whole


def generate(model, cache, logits, count):
    tokens = [int(logits[0, -1].argmax())]
    while len(tokens) < count:
        cache.length += 1
        logits = run_model(model, torch.tensor([[tokens[-1]]]), torch.tensor([[cache.length - 1]]))
        tokens.append(int(logits[0, -1].argmax()))
    return tokens


def reference(model, ids, count):
    """transformers' own attention: logits in float32 and float64, and the tokens it chooses."""
    own = copy.deepcopy(model)
    own.set_attn_implementation("eager")
    logits = run_model(own, ids, torch.arange(ids.shape[1])[None])
    tokens = own.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False
    )
    exact = run_model(own.double(), ids, torch.arange(ids.shape[1])[None])
    return logits, exact, tokens[0, ids.shape[1] :].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, help="only the first layers of the model")
    parser.add_argument("--tokens", type=int, default=20, help="to generate")
    options = parser.parse_args()
    smollm2.start_ranks(options.layers)
    rank, world_size = smollm2.join()
    model, tokenizer = smollm2.load("eager", options.layers)
    ids = tokenizer(smollm2.TEXT, return_tensors="pt").input_ids
    comm = ringattn.torch.comm_from_group(context=ringattn.Context(threads=1))
    cache = ShardedCache(comm, ids.shape[1], ids.shape[1] + options.tokens)
    AttentionInterface.register("sharded", cache.attention)
    AttentionMaskInterface.register("sharded", lambda **_: None)  # the ring masks by positions
    passed = torch.ones(1)
    with torch.no_grad():
        model.set_attn_implementation("sharded")
        logits = prefill(model, cache, ids)
        tokens = generate(model, cache, logits, options.tokens)
        if rank == 0:
            own, exact, own_tokens = reference(model, ids, options.tokens)
            ours, theirs = ((x - exact).abs().max().item() for x in (logits, own))
            print(
                f"{ids.shape[1]} tokens over {world_size} ranks. Largest error of a logit against float64: {ours:.2e}, "
                f"transformers' own in float32: {theirs:.2e}"
            )
            print(
                f"{len(tokens)} tokens generated, {'equal to' if tokens == own_tokens else 'NOT those of'} transformers' own: "
                f"{tokenizer.decode(tokens)!r}"
            )
            passed[0] = tokens == own_tokens and ours <= 2 * theirs + 1e-5
    dist.broadcast(passed, 0)
    comm.close()
    dist.destroy_process_group()
    raise SystemExit(0 if passed.item() else 1)


if __name__ == "__main__":
    main()
