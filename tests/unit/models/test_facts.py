import json
from pathlib import Path

from understudy.models.facts import described_facts, read_description, read_facts


def test_what_is_written_beside_examples_and_models_is_read(image_examples: Path, tmp_path: Path) -> None:
    written = json.loads((image_examples / "examples.json").read_text())
    assert read_facts(image_examples) == written
    (tmp_path / "understudy.json").write_text(json.dumps(written))
    assert read_description(tmp_path) == written


def test_a_model_keeps_of_its_examples_what_they_mean_and_not_how_many_they_are(
    image_examples: Path, text_examples: Path
) -> None:
    images, texts = read_facts(image_examples), read_facts(text_examples)
    assert described_facts(images) == {key: value for key, value in images.items() if key != "counts"}
    assert described_facts(texts) == {key: value for key, value in texts.items() if key != "tokens"}
