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


def unsharded_step(ids, layers):
    model, _ = smollm2.load("eager", layers)
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    return loss.detach(), model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, help="only the first layers of the model")
    options = parser.parse_args()
    smollm2.start_ranks()
    rank, world_size = smollm2.join()
    ringattn.transformers.register()
    model, tokenizer = smollm2.load(ringattn.transformers.NAME, options.layers)
    ids = tokenizer(smollm2.TEXT, return_tensors="pt").input_ids
    comm = ringattn.torch.comm_from_group(context=ringattn.Context(threads=1))
    loss = sharded_step(model, ids, comm)
    passed = torch.ones(1)
    if rank == 0:
        want, own = unsharded_step(ids, options.layers)
        difference = max(
            ((a.grad - b.grad).norm() / b.grad.norm()).item() for a, b in zip(model.parameters(), own.parameters())
        )
        print(f"{ids.shape[1]} tokens over {world_size} ranks. Loss {loss.item():.6f}, unsharded {want.item():.6f}. Largest "
              f"relative difference of a parameter's gradient: {difference:.1e}", flush=True)
        passed[0] = difference < 1e-4 and abs(loss - want) < 1e-4
    dist.broadcast(passed, 0)
    comm.close()
    dist.destroy_process_group()
    raise SystemExit(0 if passed.item() else 1)


if __name__ == "__main__":
    main()
