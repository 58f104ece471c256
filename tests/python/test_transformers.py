"""attn_implementation="ringattn" in models of transformers: against their own eager attention in float64."""

import copy

import pytest
import ringattn
import torch
from conftest import run_ranks
from oracle import close

transformers = pytest.importorskip("transformers")
import ringattn.transformers as rt  # noqa: E402 - needs transformers

LIMIT = 1e-4  # two layers and a head, in float32


def pair(kind="llama", **options):
    """A small model with ringattn, and the same weights in float64 with transformers' own attention."""
    rt.register()
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    config = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig}[kind](**sizes | options)
    cls = {"llama": transformers.LlamaForCausalLM, "mistral": transformers.MistralForCausalLM}[kind]
    own = cls._from_config(copy.deepcopy(config), attn_implementation="eager").eval()
    model = cls._from_config(config, attn_implementation=rt.NAME).eval()
    model.load_state_dict(own.state_dict())
    return model, own.double()


IDS = torch.randint(0, 64, (1, 24), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("partition", ["contiguous", "striped", "zigzag"])
@pytest.mark.parametrize("kind, options", [("llama", {}), ("mistral", {"sliding_window": 5})])
def test_logits(ring, partition, kind, options):
    model, own = pair(kind, **options)

    def rank(comm):
        with torch.no_grad(), rt.Ring(comm, seq=24, partition=partition) as place:
            return model(**place.inputs(IDS)).logits

    parts = run_ranks(ring(3), rank)
    with torch.no_grad():
        close(ringattn.unshard(parts, partition=partition), own(IDS).logits, LIMIT)


def test_packed_documents_by_position_ids(ring):
    model, own = pair()
    lengths = [7, 1, 16]
    positions = torch.cat([torch.arange(n) for n in lengths])[None]

    def rank(comm):
        with torch.no_grad(), rt.Ring(comm, seq=24, position_ids=positions) as place:
            return place, model(**place.inputs(IDS)).logits

    parts = run_ranks(ring(2), rank)
    with torch.no_grad():
        want = torch.cat([own(ids).logits for ids in IDS.split(lengths, dim=1)], dim=1)
    close(parts[0][0].sharding.unshard([p for _, p in parts]), want, LIMIT)


def test_losses_and_gradients_add_up(ring):
    models = [pair()[0] for _ in range(2)]
    own = pair()[1]

    def rank(comm):
        with rt.Ring(comm, seq=24) as place:
            loss = models[comm.rank](**place.inputs(IDS, labels=IDS)).loss
            loss.backward()
        return loss.detach()

    losses = run_ranks(ring(2), rank)
    want = own(IDS, labels=IDS).loss
    want.backward()
    close(sum(losses), want.detach(), LIMIT)
    for p, *shards in zip(own.parameters(), *(m.parameters() for m in models)):
        close(sum(s.grad for s in shards), p.grad, LIMIT)


def refused(text, change=lambda inputs: inputs, model=None, kind=ValueError):
    model = model or pair()[0]
    with ringattn.local_group(1) as group, rt.Ring(group[0], seq=24) as place, pytest.raises(kind, match=text):
        model(**change(place.inputs(IDS)))


def test_padding_is_refused():
    mask = torch.ones_like(IDS)
    mask[0, :3] = 0
    refused("attention_mask is a padding mask that hides 3 tokens", lambda i: i | {"attention_mask": mask})


def test_a_mask_of_ones_is_none():
    model, own = pair()
    with torch.no_grad(), ringattn.local_group(1) as group, rt.Ring(group[0], seq=24) as place:
        got = model(**place.inputs(IDS), attention_mask=torch.ones_like(IDS)).logits
        close(place.sharding.unshard([got]), own(IDS).logits, LIMIT)


def test_dropout_is_refused():
    refused("dropout is 0.1; .*expects 0", model=pair(attention_dropout=0.1)[0].train())


def test_mask_tensors_are_refused():
    refused("attention_mask is a tensor of shape", lambda i: i | {"attention_mask": torch.zeros(1, 1, 24, 24)})


@pytest.mark.parametrize(
    "create, options, text",
    [
        ("create_causal_mask", {"block_sequence_ids": torch.zeros(1, 24, dtype=torch.long)}, "blockwise_overlay"),
        ("create_chunked_causal_mask", {}, "chunked_overlay"),
        ("create_causal_mask", {"or_mask_function": lambda b, h, q, k: q == k}, "lambda"),
    ],
)
def test_masks_that_a_ring_does_not_have_are_refused(create, options, text):
    """Images that see themselves both ways, chunks, functions of the model's own: never taken for causal."""
    from transformers import masking_utils

    config = transformers.LlamaConfig(hidden_size=32, num_attention_heads=4, attn_implementation=rt.NAME)
    config.attention_chunk_size = 8
    x, none = torch.zeros(1, 24, 32), {"attention_mask": None, "cache": None}
    with pytest.raises(ValueError, match=f"the model's mask function is .*{text}"):
        getattr(masking_utils, create)(config, x, **none, **options)
    assert masking_utils.create_causal_mask(config, x, **none) is None


def test_shards_of_another_length_are_refused():
    refused("the sequence is 20 tokens on rank 0", lambda i: {"input_ids": IDS[:, :20], "use_cache": False})


def test_positions_of_another_rank_are_refused():
    refused("position_ids is not this rank's", lambda i: i | {"position_ids": i["position_ids"] + 1})


def test_a_model_outside_a_ring_is_refused():
    with pytest.raises(RuntimeError, match="no ring is entered"):
        pair()[0](IDS)


def test_position_ids_that_do_not_count_are_refused():
    with pytest.raises(ValueError, match="position_ids do not count"):
        rt.cu_seqlens_of(torch.tensor([[0, 1, 3]]))
    assert rt.cu_seqlens_of(torch.tensor([[0, 1, 0, 0, 1, 2]])) == [0, 2, 3, 6]
