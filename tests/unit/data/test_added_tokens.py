from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tests.unit.data.chat_models import MODELS, TEXTS, tokenizer_of
from understudy.data.added_tokens import Delimiters, TokenTexts

PLAIN = [AddedToken("<s>", normalized=False), AddedToken("</s>", normalized=False), AddedToken("[E]", normalized=False)]
ADDED = {
    "plain": PLAIN,
    "lstrip": [AddedToken("<s>", lstrip=True), AddedToken("</s>"), AddedToken("[E]", lstrip=True, rstrip=True)],
    "rstrip": [AddedToken("<s>", rstrip=True), AddedToken("</s>"), AddedToken("[E]")],
    "single word": [AddedToken("<s>", single_word=True), AddedToken("s>x"), AddedToken("[E]")],
    "words": [AddedToken("hello", single_word=True), AddedToken("</s>"), AddedToken("is", single_word=True)],
    "overlapping": [AddedToken("<s>"), AddedToken("s>h"), AddedToken("aa"), AddedToken("</s><s>"), AddedToken("</s>")],
    "white space": [AddedToken("\n", rstrip=True), AddedToken(" <s>"), AddedToken("</s>\n"), AddedToken("[E]")],
    "normalised": [*PLAIN, AddedToken("hello", normalized=True), AddedToken("A", normalized=True)],
}
"""Added tokens; those that do not say otherwise become `normalized=False` as special ones."""


def byte_level(*, add_prefix_space: bool) -> Callable[[Tokenizer], None]:
    def change(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)

    return change


def metaspace(scheme: str) -> Callable[[Tokenizer], None]:
    def change(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)

    return change


def normalised(normalizer: Any) -> Callable[[Tokenizer], None]:
    def change(tokenizer: Tokenizer) -> None:
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")

    return change


def processed(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("$A $A", special_tokens=[])


CHANGES: dict[str, Callable[[Tokenizer], None]] = {
    "byte level": byte_level(add_prefix_space=False),
    "byte level with a space": byte_level(add_prefix_space=True),
    "metaspace always": metaspace("always"),
    "metaspace first": metaspace("first"),
    "metaspace never": metaspace("never"),
    "NFKC": normalised(normalizers.NFKC()),
    "lower case": normalised(normalizers.Lowercase()),
    "llama": normalised(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])),
    "stripped": normalised(normalizers.Strip()),
    "repeated": processed,
}


def tokenizer_with(change: str, added: str) -> Any:
    """A tokenizer whose model has texts of added tokens in its vocabulary, too."""
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    CHANGES[change](tokenizer)
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, special_tokens=["?"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([*TEXTS, "<s> </s> [E] aa <s> </s> [E] aa"], trainer)
    for token in ADDED[added]:
        if added == "normalised" and token not in PLAIN:
            tokenizer.add_tokens([token])
        else:
            tokenizer.add_special_tokens([token])
    return tokenizer


TOKENIZERS = {
    **{name: tokenizer_of(name) for name in MODELS},
    **{f"{change}, {added}": tokenizer_with(change, added) for change in CHANGES for added in ADDED},
}


def pieces(tokenizer: Any) -> list[str]:
    """Parts of texts: added tokens, parts and changes of them, and words."""
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    parts = [part for text in added for part in (text, text, text[:-1], text[1:], text.upper(), f"\uff1c{text[1:]}")]
    return [*parts, " ", "\n", "\n\n", "  ", "a", "x", "hello", "hello ", " is", "user\n", "É", "e\u0301", "!", ""]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40)
@given(data=st.data())
def test_tokens_before_a_character_are_those_of_encoding_the_text_up_to_it(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    part = st.lists(st.sampled_from(pieces(tokenizer)), max_size=8).map("".join)
    before, after = data.draw(part), data.draw(part)
    text, stop = before + after, len(before)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    expected = tokenizer.encode(before, add_special_tokens=False).ids
    delimiters = Delimiters(tokenizer)
    count = delimiters.tokens_before(stop, text, ids, delimiters.boundaries(text, ids))
    assert count == (len(expected) if ids[: len(expected)] == expected else None)


def test_only_the_text_from_the_last_delimiter_on_is_encoded() -> None:
    class Recorded:
        """A tokenizer that remembers what it has encoded."""

        def __init__(self, tokenizer: Any) -> None:
            self.tokenizer, self.texts = tokenizer, list[str]()

        def encode(self, text: str, **settings: bool) -> Any:
            self.texts.append(text)
            return self.tokenizer.encode(text, **settings)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.tokenizer, name)

    tokenizer = Recorded(tokenizer_of("qwen2.5"))
    delimiters = Delimiters(tokenizer)
    text = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nI am fine.<|im_end|>\n"
    ids = tokenizer_of("qwen2.5").encode(text, add_special_tokens=False).ids
    boundaries = delimiters.boundaries(text, ids)
    assert [text[start : start + 6] for start, _ in boundaries] == ["<|im_s", "<|im_e", "<|im_s", "<|im_e"]
    for _ in range(2):
        assert delimiters.tokens_before(text.index("I am"), text, ids, boundaries) is not None
    assert tokenizer.texts == ["<|im_start|>assistant\n"]


def test_tokens_that_are_not_those_of_the_beginning_are_refused() -> None:
    tokenizer = tokenizer_of("qwen2.5")
    delimiters = Delimiters(tokenizer)
    text = "<|im_start|>assistant\n\n\nhello"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert delimiters.tokens_before(text.index("\n") + 1, text, ids, delimiters.boundaries(text, ids)) is None


@pytest.mark.parametrize(
    ("added", "text", "boundaries"),
    [
        ([AddedToken("<s>")], "a<s>a", [(1, 1)]),
        ([AddedToken("<s>")], "a <s>a \uff1cs\uff1e a", []),
        ([AddedToken("<s>", single_word=True)], "x<s> \uff1cs\uff1e a", []),
        ([AddedToken("<s>"), AddedToken("<s>b", single_word=True)], "<s>b \uff1cs\uff1e a", []),
        ([AddedToken("<s>"), AddedToken("a<s", single_word=True)], "a<s> \uff1cs\uff1e a", []),
        ([AddedToken("<s>"), AddedToken("<<s>>", single_word=True)], "<<s>> \uff1cs\uff1e a", []),
    ],
)
def test_an_id_that_is_not_that_of_a_delimiter_leaves_no_boundaries(
    added: list[AddedToken], text: str, boundaries: list[tuple[int, int]]
) -> None:
    """A normaliser makes the text of an added token, the model's vocabulary has it, and another text hides one."""
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "a": 1, "?": 2}, unk_token="?"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(added)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert Delimiters(tokenizer).boundaries(text, ids) == boundaries


@given(
    texts=st.lists(st.text("ab< ", max_size=9), max_size=5), text=st.text("ab< ", max_size=30), start=st.integers(0, 9)
)
def test_the_first_token_is_the_longest_at_the_first_place(texts: list[str], text: str, start: int) -> None:
    places = ((text.find(token, start), -len(token), token) for token in texts if token.strip())
    found = sorted(place for place in places if place[0] >= 0)
    assert TokenTexts(texts).first(text, start) == ((found[0][0], found[0][2]) if found else None)
