"""What lm-eval is answered: the numbers of its own class for models of transformers, and of a formula in float64."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from understudy.data import tokenizer, tokenizer_files
from understudy.evaluate.benchmark_model import BenchmarkModel
from understudy.models.tasks import TextModel

LENGTH = 24
TEXTS = ["grass is green. snow is white.", "coal is black. blood is red.", "so now then, what colour has it?"]
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer as examples have it."""
    folder = tmp_path_factory.mktemp("examples")
    trained = tokenizer.train(iter(TEXTS), 280)
    (folder / "tokenizer.json").write_text(trained.to_str())
    files = tokenizer_files.of_trained()
    config = json.loads(files["tokenizer_config.json"]) | {"chat_template": TEMPLATE}
    tokenizer_files.write(folder, {**files, "tokenizer_config.json": json.dumps(config)})
    facts = {"task": "causal-lm", "vocab_size": trained.get_vocab_size(), "eos_id": 0, "sequence_length": LENGTH}
    (folder / "examples.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="module")
def net(examples: Path) -> Any:
    torch.manual_seed(0)
    words = json.loads((examples / "examples.json").read_text())["vocab_size"]
    config = LlamaConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=words,
        eos_token_id=0,
        bos_token_id=0,
        pad_token_id=0,
        initializer_range=0.5,
    )
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture(scope="module")
def ours(examples: Path, net: Any) -> BenchmarkModel:
    return BenchmarkModel(TextModel(net, net.config.vocab_size), examples, 3, torch.device("cpu"), lambda: None)


@pytest.fixture(scope="module")
def theirs(examples: Path, net: Any) -> HFLM:
    tokens = PreTrainedTokenizerFast.from_pretrained(examples)
    return HFLM(pretrained=net, tokenizer=tokens, max_length=LENGTH, batch_size=3, device="cpu")


def instances(kind: Any, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, args, at) for at, args in enumerate(arguments)]


QUESTIONS = [
    ("grass is", " green"),
    ("grass is ", "white."),
    ("", "coal is black."),
    ("blood is red. " * 9, "snow is white"),
    ("so", " now then, what colour has it?"),
]


def test_log_likelihoods_are_those_of_lm_eval(ours: BenchmarkModel, theirs: HFLM) -> None:
    expected = theirs.loglikelihood(instances("loglikelihood", *QUESTIONS), disable_tqdm=True)
    answers = ours.loglikelihood(instances("loglikelihood", *QUESTIONS), disable_tqdm=True)
    assert [greedy for _, greedy in answers] == [greedy for _, greedy in expected]
    np.testing.assert_allclose([value for value, _ in answers], [value for value, _ in expected], rtol=1e-5)


def test_a_log_likelihood_is_the_formulas(ours: BenchmarkModel, net: Any) -> None:
    ((value, _),) = ours.loglikelihood(instances("loglikelihood", QUESTIONS[0]), disable_tqdm=True)
    context, whole = ours.tok_encode("grass is"), ours.tok_encode("grass is green")
    with torch.inference_mode():
        logits = net(torch.tensor([whole[:-1]])).logits[0].double().numpy()
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = sum(logs[at - 1, whole[at]] for at in range(len(context), len(whole)))
    assert value == pytest.approx(expected, rel=1e-5)


def test_a_continuation_is_greedy_if_it_is_the_likeliest(ours: BenchmarkModel, net: Any) -> None:
    found = []
    for context in ("grass is", "snow", "so now", "coal is black. blood", "what", "is red"):
        ids = ours.tok_encode(context)
        with torch.inference_mode():
            best = int(net(torch.tensor([ids])).logits[0, -1].argmax())
        text = ours.tokenizer.decode([best])
        if ours.tok_encode(context + text) == [*ids, best]:
            found.append((context, text))
    assert found
    others = [(context, "?") for context, _ in found]
    answers = ours.loglikelihood(instances("loglikelihood", *found, *others), disable_tqdm=True)
    assert [greedy for _, greedy in answers] == [True] * len(found) + [False] * len(found)


def test_windows_over_long_texts_are_those_of_lm_eval(ours: BenchmarkModel, theirs: HFLM) -> None:
    texts = [(" ".join(TEXTS * count),) for count in (1, 3)]
    expected = theirs.loglikelihood_rolling(instances("loglikelihood_rolling", *texts), disable_tqdm=True)
    np.testing.assert_allclose(
        ours.loglikelihood_rolling(instances("loglikelihood_rolling", *texts)), expected, rtol=1e-5
    )


def test_answers_are_those_of_lm_eval(ours: BenchmarkModel, theirs: HFLM) -> None:
    """Up to the stop texts, which one token may contain, or several together."""
    contexts, most = ("grass is", "snow is white. coal", "so now " * 20), {"max_gen_toks": 12}
    whole = theirs.generate_until(instances("generate_until", *[(text, {"until": [], **most}) for text in contexts]))
    untils = [[], *([text[place : place + size]] for text in whole for place, size in ((2, 1), (3, 2), (4, 4)))]
    asked = [(text, {"until": until, **most}) for text in contexts for until in untils]
    expected = theirs.generate_until(instances("generate_until", *asked), disable_tqdm=True)
    assert ours.generate_until(instances("generate_until", *asked)) == expected
    assert len({len(text) for text in expected}) > 4


def test_a_template_renders_as_lm_evals_does(ours: BenchmarkModel, theirs: HFLM) -> None:
    for turns, begins in (([("user", "a")], True), ([("user", "a"), ("assistant", "b")], False)):
        history = [{"role": role, "content": content} for role, content in turns]
        text = ours.apply_chat_template(history, add_generation_prompt=begins)
        assert text == theirs.apply_chat_template(history, add_generation_prompt=begins)
    assert ours.apply_chat_template([{"role": "user", "content": "a"}]) == "<user>a\n<a>"


def test_logits_that_are_no_numbers_make_a_model_broken(examples: Path, net: Any) -> None:
    model = BenchmarkModel(_Broken(), examples, 3, torch.device("cpu"), lambda: None)
    assert not model.is_broken
    model.loglikelihood(instances("loglikelihood", QUESTIONS[0]), disable_tqdm=True)
    assert model.is_broken


class _Broken(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> Any:
        from understudy.models.tasks import Outputs

        return Outputs(torch.full((*inputs.shape, 280), torch.nan), (), ())
