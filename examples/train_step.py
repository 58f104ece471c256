"""One step of fine-tuning SmolLM2-135M with the sequence sharded over 4 ranks: loss and gradients equal the unsharded step's.

    python examples/train_step.py

Each rank runs the model on its own tokens (zig-zag, so that all have the same work); attention goes round the ring, forward
and backward. A rank's loss is its part of the whole one, and gradients are summed over the ranks.
"""

import argparse

import ringattn.torch
import ringattn.transformers
import smollm2
import torch
import torch.distributed as dist


def sharded_step(model, ids, comm):
    with ringattn.transformers.Ring(comm, seq=ids.shape[1], partition="zigzag") as ring:
        loss = model(**ring.inputs(ids, labels=ids)).loss
        loss.backward()
    total = loss.detach().clone()
    dist.all_reduce(total)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    return total


def unsharded_step(ids, layers, dtype):
    model = smollm2.load("eager", layers)[0].to(dtype)
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    return loss.detach(), model


def largest_error(model, exact):
    """Of the parameters' gradients, the largest relative distance from those of the same model in float64."""
    pairs = zip(model.parameters(), exact.parameters())
    return max(((own.grad - want.grad).norm() / want.grad.norm()).item() for own, want in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, help="only the first layers of the model")
    options = parser.parse_args()
    smollm2.start_ranks(options.layers)
    rank, world_size = smollm2.join()
    ringattn.transformers.register()
    model, tokenizer = smollm2.load(ringattn.transformers.NAME, options.layers)
    ids = tokenizer(smollm2.TEXT, return_tensors="pt").input_ids
    comm = ringattn.torch.comm_from_group(context=ringattn.Context(threads=1))
    loss = sharded_step(model, ids, comm)
    passed = torch.ones(1)
    if rank == 0:
        own_loss, own = unsharded_step(ids, options.layers, torch.float32)
        want, exact = unsharded_step(ids, options.layers, torch.float64)
        ours, theirs = largest_error(model, exact), largest_error(own, exact)
        print(f"{ids.shape[1]} tokens over {world_size} ranks. Loss {loss.item():.6f}, unsharded {own_loss.item():.6f}")
        print(f"largest relative error of a gradient against float64: {ours:.1e}, unsharded {theirs:.1e}", flush=True)
        passed[0] = ours <= 2 * theirs and abs(loss - want) <= 2 * abs(own_loss - want) + 1e-5
    dist.broadcast(passed, 0)
    comm.close()
    dist.destroy_process_group()
    raise SystemExit(0 if passed.item() else 1)


if __name__ == "__main__":
    main()
