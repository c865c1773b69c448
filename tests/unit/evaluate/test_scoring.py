import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from understudy.data.measured import Batch, Documents, Labelled
from understudy.evaluate.scoring import Scores, predicted, predictions
from understudy.models.outputs import Outputs

CPU, EOS, VOCABULARY = torch.device("cpu"), 0, 7
documents = st.lists(st.lists(st.integers(1, VOCABULARY - 1), max_size=20), min_size=1, max_size=8)


def write_documents(folder, texts):
    folder.mkdir(parents=True, exist_ok=True)
    tokens = [[*text, EOS] for text in texts]
    np.save(folder / "test.tokens.npy", np.concatenate(tokens).astype(np.uint16))
    np.save(folder / "test.offsets.npy", np.cumsum([0, *map(len, tokens)]))
    np.save(folder / "test.bytes.npy", np.array([3 * len(text) for text in texts]))


class Sighted(nn.Module):
    """Predicts from all tokens that it was given so far: which it was given can be read off its logits."""

    def forward(self, inputs):
        counts = nn.functional.one_hot(inputs, VOCABULARY).double().cumsum(dim=1)
        return torch.sin(counts @ torch.arange(VOCABULARY**2).reshape(VOCABULARY, VOCABULARY).double())


class Says(nn.Module):
    """A network whose outputs are logits."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs):
        return Outputs(self.net(inputs))


def scored(net, split, size):
    module = Says(net)
    scores = Scores(len(split.tokens))
    for batch in split.batches(size):
        results = predicted(module, batch, CPU)
        scores.add(results.examples, results.nll, results.correct, results.confidence)
    return scores


@settings(deadline=None, max_examples=40)
@given(documents, st.integers(2, 9), st.integers(1, 5))
def test_a_bigram_scores_documents_as_token_by_token(tmp_path_factory, texts, length, size):
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder, texts)
    torch.manual_seed(0)
    bigram = nn.Embedding(VOCABULARY, VOCABULARY)
    log_probabilities = bigram.weight.log_softmax(dim=-1).detach().numpy()
    split = Documents(folder, length, EOS, length)
    with torch.inference_mode():
        scores = scored(bigram, split, size)
    for number, text in enumerate(texts):
        steps = list(zip([EOS, *text], [*text, EOS], strict=True))
        assert split.tokens[number] == len(steps)
        assert scores.nll[number] == pytest.approx(-sum(log_probabilities[a, b] for a, b in steps), rel=1e-5)
        assert scores.correct[number] == sum(log_probabilities[a].argmax() == b for a, b in steps)
        assert scores.confidence["count"][number].sum() == len(steps)
    confidence = sum(np.exp(log_probabilities[a].max()) for text in texts for a in [EOS, *text])
    assert scores.confidence["sum"].sum() == pytest.approx(confidence, rel=1e-5)
    assert split.batch_count(size) == len(list(split.batches(size)))


@settings(deadline=None, max_examples=20)
@given(documents, st.integers(2, 9), st.integers(1, 5))
def test_a_model_sees_its_window_and_nothing_else(tmp_path_factory, texts, length, size):
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder, texts)
    scores = scored(Sighted(), Documents(folder, length, EOS, length), size)
    for number, text in enumerate(texts):
        inputs, targets = [EOS, *text], [*text, EOS]
        expected = 0.0
        for start in range(0, len(inputs), length):
            logits = Sighted()(torch.tensor([inputs[start : start + length]])).float()[0]
            window = torch.tensor(targets[start : start + length])
            expected += nn.functional.cross_entropy(logits, window, reduction="sum").item()
        assert scores.nll[number] == pytest.approx(expected, rel=1e-5)


def rolling(tokens, length, context):
    """lm-eval's get_rolling_token_windows, written from its definition: inputs, and the targets at their end."""
    yield [EOS, *tokens[: length - 1]][: len(tokens)], tokens[:length]
    done = length
    while done < len(tokens):
        end = min(done + length - context + 1, len(tokens))
        yield tokens[end - length - 1 : end - 1], tokens[done:end]
        done = end


@settings(deadline=None, max_examples=40)
@given(documents, st.integers(2, 9), st.data(), st.integers(1, 5))
def test_windows_that_overlap_are_those_of_lm_eval(tmp_path_factory, texts, length, data, size):
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder, texts)
    stride = data.draw(st.integers(1, length - 1))
    scores = scored(Sighted(), Documents(folder, length, EOS, stride), size)
    for number, text in enumerate(texts):
        expected = 0.0
        for inputs, targets in rolling([*text, EOS], length, length - stride + 1):
            logits = Sighted()(torch.tensor([inputs])).float()[0, -len(targets) :]
            expected += nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="sum").item()
        assert scores.nll[number] == pytest.approx(expected, rel=1e-5)


@settings(deadline=None, max_examples=100)
@given(documents, st.integers(2, 30), st.data(), st.integers(1, 5))
def test_every_token_is_counted_once_with_the_context_that_the_stride_leaves(
    tmp_path_factory, texts, length, data, size
):
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder, texts)
    stride = data.draw(st.integers(1, length))
    split = Documents(folder, length, EOS, stride)
    begins = np.load(folder / "test.offsets.npy")
    predicted_tokens = []
    for batch in split.batches(size):
        assert batch.inputs.shape[1] <= length
        for targets, examples in zip(batch.targets, batch.examples, strict=True):
            counted = np.flatnonzero(examples >= 0)
            document = examples[counted[0]]
            assert np.array_equal(counted, np.arange(counted[0], counted[-1] + 1))
            predicted_tokens += [(document, target) for target in targets[counted]]
            context = counted[0]
            assert context == 0 or context >= length - stride
            assert context + len(counted) <= begins[document + 1] - begins[document]
    expected = [(number, token) for number, text in enumerate(texts) for token in [*text, EOS]]
    assert sorted(predicted_tokens) == sorted(expected)
    assert split.batch_count(size) == len(list(split.batches(size)))


def test_a_shorter_stride_gives_more_context_and_the_whole_length_the_old_windows(tmp_path):
    write_documents(tmp_path, [[1, 2, 3, 4, 5, 6]])
    full_stride, half_stride = (next(Documents(tmp_path, 4, EOS, stride).batches(9)) for stride in (4, 2))
    assert full_stride.inputs.tolist() == [[0, 1, 2, 3], [4, 5, 6, 4]]
    assert full_stride.examples.tolist() == [[0, 0, 0, 0], [0, 0, 0, -1]]
    assert half_stride.inputs.tolist() == [[0, 1, 2, 3], [2, 3, 4, 5], [3, 4, 5, 6]]
    assert half_stride.examples.tolist() == [[0, 0, 0, 0], [-1, -1, 0, 0], [-1, -1, -1, 0]]


def test_predictions_agree_with_torch():
    torch.manual_seed(0)
    logits, targets = torch.randn(5, 3, 11), torch.randint(11, (5, 3))
    nll, correct, confidence = predictions(logits, targets)
    torch.testing.assert_close(nll, nn.functional.cross_entropy(logits.mT, targets, reduction="none"))
    torch.testing.assert_close(confidence, logits.softmax(dim=-1).amax(dim=-1))
    assert torch.equal(correct.bool(), logits.argmax(dim=-1) == targets)


@pytest.mark.parametrize("invalid", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_no_prediction(invalid):
    logits = torch.zeros(3, 4)
    logits[1, 2] = invalid
    for values in predictions(logits, torch.tensor([0, 0, 0])):
        assert values.isnan().tolist() == [False, True, False]


def test_a_class_that_is_ruled_out_is_still_a_prediction():
    nll, correct, confidence = predictions(torch.tensor([[0.0, -torch.inf]]), torch.tensor([0]))
    assert (nll.item(), correct.item(), confidence.item()) == (0, 1, 1)


def test_no_prediction_leaves_its_example_unmeasured_and_no_other():
    scores = Scores(2)
    scores.add(np.array([0, 1, 1]), *(np.array([1.0, np.nan, 1.0]) for _ in range(3)))
    assert np.isfinite(scores.nll).tolist() == [True, False]
    assert np.isfinite(scores.confidence["sum"]).all(axis=1).tolist() == [True, False]


def test_images_come_once_each_and_again_when_timing_needs_more(tmp_path):
    np.save(tmp_path / "test.images.npy", np.arange(5 * 4, dtype=np.uint8).reshape(5, 1, 2, 2))
    np.save(tmp_path / "test.labels.npy", np.arange(5))
    split = Labelled(tmp_path, "images")
    batches = list(split.batches(2))
    assert [len(batch.inputs) for batch in batches] == [2, 2, 1]
    assert split.batch_count(2) == 3
    assert np.concatenate([batch.targets for batch in batches]).tolist() == list(range(5))
    assert split.sample(7)[:, 0, 0, 0].tolist() == [0, 4, 8, 12, 16, 0, 4]


def test_documents_give_full_windows_for_timing_however_short_they_are(tmp_path):
    write_documents(tmp_path, [[1], [2, 3]])
    assert Documents(tmp_path, 4, EOS, 4).sample(2).tolist() == [[1, 0, 2, 3], [0, 1, 0, 2]]


def test_padding_is_in_no_confusion_matrix() -> None:
    inputs = np.array([[1, 2, 0], [2, 0, 0]])
    targets, examples = np.array([[1, 1, 0], [2, 0, 0]]), np.array([[0, 0, -1], [1, -1, -1]])
    results = predicted(Says(nn.Embedding.from_pretrained(torch.eye(3))), Batch(inputs, targets, examples), CPU, 3)
    assert results.confusion.tolist() == [[0, 0, 0], [0, 1, 1], [0, 0, 1]]
    assert results.examples.tolist() == [0, 0, 1]
    assert results.correct.tolist() == [1, 0, 1]
