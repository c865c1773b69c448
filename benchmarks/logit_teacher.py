"""Teachers for benchmarks.logit_cache: a small transformer over 32,768 words, or a mixture that resembles one.

python -m benchmarks.logit_teacher TOKENS.npy WEIGHTS.pt [--minutes 25]

trains the transformer on tokens below 32,768 (uint16; the last 300,000 are for the measurement), with 2,048 sampled
classes beside the target (Jean et al. 2015), since the whole softmax would take most of the time.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 32_768, 128, 192, 6, 3
HELD_OUT = 300_000
BATCH, SAMPLED, RATE = 24, 2048, 2e-3


class Block(nn.Module):
    """Causal attention and a feed-forward network, normalised before."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, states: Tensor) -> Tensor:
        shape = (*states.shape[:2], HEADS, WIDTH // HEADS)
        query, key, value = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm(states)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.out(mixed.transpose(1, 2).reshape(states.shape))
        output: Tensor = states + self.mlp(self.norm2(states))
        return output


class Transformer(nn.Module):
    """States whose product with the embedding, plus a bias, are the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))
        for embedding in (self.embedding, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        states: Tensor = self.blocks(self.embedding(tokens) + self.positions.weight[: tokens.shape[1]])
        normed: Tensor = self.norm(states)
        return normed


def loss(model: Transformer, window: Tensor, unigram: Tensor, negatives: Tensor) -> Tensor:
    """Sampled softmax with shared classes, corrected for how often each is drawn."""
    states, targets = model(window[:, :-1]).reshape(-1, WIDTH), window[:, 1:].reshape(-1)
    offsets = model.bias - (unigram * SAMPLED).log()
    right = (states * model.embedding.weight[targets]).sum(-1) + offsets[targets]
    wrong = states @ model.embedding.weight[negatives].T + offsets[negatives]
    wrong = wrong.masked_fill(negatives == targets[:, None], -1e9)
    losses: Tensor = torch.logsumexp(torch.cat([right[:, None], wrong], 1), 1) - right
    return losses.mean()


def train(tokens: Tensor, seconds: float) -> Transformer:
    """A transformer after this time."""
    torch.manual_seed(0)
    model, unigram = Transformer(), torch.bincount(tokens, minlength=VOCABULARY).float() + 1
    unigram /= unigram.sum()
    model.bias.data = unigram.log()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    began, step = time.monotonic(), 0
    while (share := (time.monotonic() - began) / seconds) < 1:
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / 100) * (1 - 0.95 * share)
        starts = torch.randint(0, len(tokens) - LENGTH - 1, (BATCH,))
        window = tokens[starts[:, None] + torch.arange(LENGTH + 1)]
        value = loss(model, window, unigram, torch.multinomial(unigram, SAMPLED, replacement=True))
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
    print(f"{step} steps")
    return model


def transformer(tokens: Path, weights: Path) -> Callable[[int], Tensor]:
    """Log-probabilities (LENGTH, VOCABULARY) of a held-out example by its number."""
    model = Transformer()
    model.load_state_dict(torch.load(weights, weights_only=True))
    held_out = torch.from_numpy(np.load(tokens)[-HELD_OUT:].astype(np.int64))

    def log_probs(example: int) -> Tensor:
        window = held_out[example * LENGTH : (example + 1) * LENGTH]
        with torch.inference_mode():
            logits = model(window[None])[0] @ model.embedding.weight.T + model.bias
            return torch.log_softmax(logits, dim=-1).clone()

    return log_probs


def zipf_mixture(topics: int = 64) -> Callable[[int], Tensor]:
    """The same of a mixture: the frequencies of Zipf's law, times a position's topic, times noise."""
    generator = torch.Generator().manual_seed(0)
    common = -torch.log(torch.arange(VOCABULARY) + 2.7)[torch.randperm(VOCABULARY, generator=generator)]
    themes = 2.0 * torch.randn(topics, VOCABULARY, generator=generator)

    def log_probs(example: int) -> Tensor:
        of_example = torch.Generator().manual_seed(1 + example)
        chosen = torch.randint(0, topics, (LENGTH,), generator=of_example)
        sharpness = 0.8 + 1.4 * torch.rand(LENGTH, 1, generator=of_example)
        noise = torch.randn(LENGTH, VOCABULARY, generator=of_example)
        return torch.log_softmax(sharpness * (common + themes[chosen] + noise), dim=-1)

    return log_probs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--minutes", type=float, default=25)
    options = parser.parse_args()
    tokens = torch.from_numpy(np.load(options.tokens)[:-HELD_OUT].astype(np.int64))
    torch.save(train(tokens, 60 * options.minutes).state_dict(), options.weights)


if __name__ == "__main__":
    main()
