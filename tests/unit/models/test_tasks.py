"""Task models: where the last layer may be asked for some positions alone."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tests.unit.models.small import network
from understudy.models import outputs
from understudy.models.outputs import Outputs
from understudy.models.tasks import ClassifierModel, TextModel
from understudy.objectives.batch import Batch
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective
from understudy.objectives.objective import Context, objective
from understudy.objectives.pieces import loss_in_pieces
from understudy.recipe import Train

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


def padded(rows: int, *, tied: bool, seed: int = 0) -> TextModel:
    """A model of 50 tokens, the same for any number of `rows`; padded ones have logits of thousands."""
    model = TextModel(network("llama", vocab_size=rows, tie_word_embeddings=tied), 50)
    real = network("llama", vocab_size=50, tie_word_embeddings=tied).state_dict()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.net.named_parameters():
            shape = real[name].shape
            parameter[: shape[0]] = torch.randn(shape, generator=generator) / 4
            parameter[shape[0] :] = 1000.0
    return model


def losses(student: TextModel, teacher: TextModel, labels: Tensor, *, in_pieces: bool) -> Tensor:
    """The loss of labels and logits, with all logits in memory or in pieces of seven positions."""
    objectives = (LabelsObjective(type="labels", weight=0.3), LogitsObjective(type="logits", weight=0.7))
    criterion, batch = objective(objectives, Context(Train(steps=1), seed=0)), Batch(TOKENS, labels)
    if not in_pieces:
        with torch.no_grad():
            teacher_outputs: Outputs = teacher(TOKENS)
        loss: Tensor = criterion(student(TOKENS), (teacher_outputs,), batch)
        return loss
    for model in (student, teacher):
        model.separate_head()
    with torch.no_grad():
        teacher_states = teacher(TOKENS, reduce=lambda states: states)
    in_parts: Tensor = student(
        TOKENS, reduce=lambda states: loss_in_pieces(criterion, states, (teacher_states,), batch)
    )
    return in_parts


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("in_pieces", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_padded_rows_get_no_gradient_and_take_no_probability(
    monkeypatch: pytest.MonkeyPatch, tied: bool, in_pieces: bool, linear: bool
) -> None:
    """Student and teacher have different numbers of them; loss and gradients are those without any."""
    monkeypatch.setattr(outputs, "LOGITS_AT_A_TIME", 7 * 50)
    if not linear:  # as under tp, where the head is no plain layer
        monkeypatch.setattr("understudy.models.tasks.plain_linear", lambda head: None)
    labels, results = TOKENS.roll(-1, 1), []
    for student_rows, teacher_rows in ((50, 50), (64, 128)):
        student, teacher = padded(student_rows, tied=tied), padded(teacher_rows, tied=tied, seed=1)
        loss = losses(student, teacher, labels, in_pieces=in_pieces)
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in student.net.named_parameters()}
        results.append((loss.detach(), gradients))
    probabilities = student(TOKENS).logits.softmax(-1)
    assert probabilities.shape[-1] == 50
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 6))
    (exact_loss, exact), (loss, ours) = results
    torch.testing.assert_close(loss, exact_loss)
    for name, gradient in ours.items():
        rows = len(exact[name])
        torch.testing.assert_close(gradient[:rows], exact[name], msg=lambda text, at=name: f"{at}: {text}")
        assert not gradient[rows:].any(), name
    head = "model.embed_tokens.weight" if tied else "lm_head.weight"
    assert len(ours[head]) == 64
