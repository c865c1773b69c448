"""Task models: where the last layer may be asked for some positions alone."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tests.unit.models.small import network
from understudy.models.tasks import ClassifierModel, TextModel

TOKENS = torch.randint(50, (2, 6), generator=torch.Generator().manual_seed(0))
CHANGED = {"gemma2": {"final_logit_softcapping": 1.0}, "granite": {"logits_scaling": 4.0}}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_logits_of_some_positions_are_those_of_all(kind: str, tied: bool) -> None:
    model = TextModel(network(kind, tie_word_embeddings=tied), 50)
    model.detect_head(lambda reduce: model(TOKENS, reduce=reduce))
    assert model(TOKENS, reduce=lambda outputs: outputs.states.shape[-1]) != 50
    selected = model(TOKENS, reduce=lambda outputs: outputs.logits(slice(3, 8)))
    torch.testing.assert_close(selected, model(TOKENS).logits.flatten(0, 1)[3:8])


@pytest.mark.parametrize("kind", sorted(CHANGED))
def test_a_network_that_changes_its_logits_afterwards_says_them_itself(kind: str) -> None:
    model = TextModel(network(kind, **CHANGED[kind]), 50)
    model.detect_head(lambda reduce: model(TOKENS, reduce=reduce))
    selected = model(TOKENS, reduce=lambda outputs: outputs.logits(slice(3, 8)))
    assert torch.equal(selected, model(TOKENS).logits.flatten(0, 1)[3:8])


class Own(nn.Module):
    """A network that is not transformers'."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Embedding(50, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layer(tokens)


def test_so_does_a_network_of_another_kind() -> None:
    model = TextModel(Own(), 50)
    model.detect_head(lambda reduce: model(TOKENS, reduce=reduce))
    assert torch.equal(
        model(TOKENS, reduce=lambda outputs: outputs.logits(slice(3, 8))), model(TOKENS).logits.flatten(0, 1)[3:8]
    )


class Averaging(nn.Module):
    """A network of one hidden state."""

    def forward(self, tokens: Tensor, attention_mask: Tensor, **options: bool) -> SimpleNamespace:
        states = (tokens * attention_mask)[..., None].float()
        return SimpleNamespace(logits=states.mean(1), hidden_states=(states,) if options else None)


def test_a_classifier_returns_its_mask_beside_hidden_states() -> None:
    model = ClassifierModel(Averaging(), lambda tokens: (tokens, {"attention_mask": (tokens > 0).long()}))
    tokens = torch.tensor([[3, 4, 0], [5, 0, 0]])
    outputs = model(tokens, frozenset({"hidden_states"}))
    assert outputs.mask.tolist() == [[1, 1, 0], [1, 0, 0]]
    assert model(tokens).mask is None
