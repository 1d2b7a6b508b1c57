"""Positions in a small model: kernels of its heads, and its extended positional embeddings.

Shapes: L layers, H heads, T positions, D residual width, d head width.
"""

import torch
from demo_measures import eager
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

NEAR = 10


def kernels(model: PreTrainedModel, tokens: Tensor, query: int, skip: int) -> Tensor:
    """Mean positional kernel of every head at position `query`, [L, H, query + 1 - skip].

    Keys are averaged over the windows; each window's own query gives a kernel, and these are
    averaged in turn.
    """
    queries, keys = queries_and_keys(model, tokens[:, : query + 1])
    mean_keys = keys.mean(0)[..., skip:, :]
    scores = torch.einsum("wlhd,lhid->wlhi", queries[..., query, :], mean_keys)
    return torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1).mean(0)


def queries_and_keys(model: PreTrainedModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys with their biases, or after rotation, both [windows, L, H, T, d]."""
    if not isinstance(model, GPT2LMHeadModel):
        return rotated(model, tokens)
    projected: list[Tensor] = []
    hooks = [
        block.attn.c_attn.register_forward_hook(lambda _module, _input, out: projected.append(out))
        for block in model.transformer.h
    ]
    with torch.no_grad():
        model.transformer(tokens)
    for hook in hooks:
        hook.remove()
    heads, layers = model.config.n_head, torch.stack(projected, dim=1)
    query, key, _ = (part.unflatten(-1, (heads, -1)) for part in layers.chunk(3, dim=-1))
    return query.transpose(2, 3), key.transpose(2, 3)


def rotated(model: PreTrainedModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys of a Llama after rotation; a key for each head that shares it."""
    config = model.config
    at = torch.arange(tokens.shape[1])[None]
    with torch.no_grad():
        states = model.model(tokens, output_hidden_states=True).hidden_states
        turns = model.model.rotary_emb(states[0], at)
        found = []
        for block, state in zip(model.model.layers, states, strict=False):
            normed = block.input_layernorm(state)
            projected = (block.self_attn.q_proj(normed), block.self_attn.k_proj(normed))
            heads = (
                part.unflatten(-1, (-1, config.head_dim)).transpose(1, 2) for part in projected
            )
            query, key = apply_rotary_pos_emb(*heads, *turns)
            shared = query.shape[1] // key.shape[1]
            found.append((query, key.repeat_interleave(shared, dim=1)))
    query, key = (torch.stack(parts, dim=1) for parts in zip(*found, strict=True))
    return query, key


def effective_tokens(kernel: Tensor) -> Tensor:
    """`ETC = 1 / sum K^2`, in tokens; the last axis goes."""
    return 1 / kernel.square().sum(-1)


def kind(kernel: Tensor) -> str:
    """Kind of one head by its kernel, [visible]: local, slow decay or uniform."""
    if kernel[-NEAR:].sum() >= 0.5:
        return "local"
    return "uniform" if effective_tokens(kernel) >= 0.5 * len(kernel) else "slow decay"


def extended_positions(model: GPT2LMHeadModel, count: int = 100, seed: int = 0) -> Tensor:
    """Residual stream before each layer on prompts of one repeated token, [L, T, D].

    Minus its mean over positions, averaged over `count` tokens; at layer 0 this is the centred
    positional embedding.
    """
    length = model.config.n_positions
    generator = torch.Generator().manual_seed(seed)
    chosen = 1 + torch.randperm(model.config.vocab_size - 1, generator=generator)[:count]
    total = torch.zeros(())
    with eager(model):
        for token in chosen:
            prompt = token.expand(1, length)
            states = model.transformer(prompt, output_hidden_states=True).hidden_states
            total = total + torch.cat(states[: model.config.n_layer])
    mean = total / count
    return mean - mean.mean(1, keepdim=True)


def explained_variance(positions: Tensor, components: int = 3) -> float:
    """Share of the variance over positions, [T, D], in the first principal components."""
    variances = torch.linalg.svdvals(positions - positions.mean(0)).square()
    return (variances[:components].sum() / variances.sum()).item()
