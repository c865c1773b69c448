"""The YAML of a first recipe for a folder's data: sized for a laptop, with comments on possible changes."""

import itertools
import json
import math

from understudy.data.labels import lookalikes
from understudy.data.survey import Documents, Images
from understudy.errors import InputError
from understudy.evaluate.intervals import least_examples
from understudy.evaluate.sufficiency import detectable_loss
from understudy.recipe import yaml
from understudy.recipe.tasks import TASKS, load

CONFIDENCE = 0.95
MARGINS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
CAREFUL = 0.1  # the largest margin that is useful to most users
SPARE = 1.3  # times the minimum of test documents: the size of a split by content is approximate
SPREAD = 2  # standard deviations that a split by content may be smaller than its share
LEAST_SIDE, LARGEST_SIDE = 8, 64  # pixels
STEPS = 600  # of a training, approximately; some minutes on two cores
SHARE = 0.2

HEAD = """\
# {data}
# What there is to set, with every default: docs/using/recipes.md, or understudy recipe show {file}
{named}    # also names the experiment and the registered model in MLflow
task: {task}
seed: 0
"""
IMAGES = """\
data:
  source: {{type: image-folder, path: {path}}}
  {split}
  on_error: fail    # an image that cannot be read: fail names it, skip leaves it out and counts it
  image: {{size: {size}, channels: {channels}}}    # every image is resized to this
teacher:
  model:    # from scratch; or  {{pretrained: FOLDER_OR_HUB_ID, revision: COMMIT}}
    type: {type}
    config: {teacher}
  train:
    epochs: {epochs}    # a first try:  --set teacher.train.steps=10 --set student.train.steps=10
    batch_size: 64
    optimizer: {{learning_rate: 1.0e-3, weight_decay: 0.05}}
    schedule: {{warmup: 40}}
student:
  model:
    type: {type}
    config: {student}
  train:
    epochs: {epochs}
    batch_size: 64
    optimizer: {{learning_rate: 2.0e-3, weight_decay: 0.05}}
    schedule: {{warmup: 40}}
  distill:    # what the student learns from: the labels, and the teacher's logits
    - {{type: labels, weight: 0.3}}
    - {{type: logits, weight: 0.7, temperature: 2.0}}
  control: true    # train the student without the teacher too: what was the teacher worth?
gate:
  margin: {margin}    # the largest loss of accuracy; {why}
"""
TEXTS = """\
data:
  source: {{type: text-files, path: {path}, glob: "**/*{suffix}"}}    # a file is a document
  {split}
  on_error: fail    # a file that is no UTF-8: fail names it, skip leaves it out and counts it
  text:
    sequence_length: 128
    tokenizer: {{vocab_size: {vocabulary}}}    # trained on the training documents
teacher:
  model:
    type: gpt2
    config: {{n_embd: 192, n_layer: 4, n_head: 4, n_positions: 128}}
  train:
    epochs: {epochs}    # a first try:  --set teacher.train.steps=10 --set student.train.steps=10
    batch_size: 16
    optimizer: {{learning_rate: 2.0e-3, weight_decay: 0.1}}
    schedule: {{warmup: 50}}
student:
  model:
    type: gpt2
    config: {{n_embd: 96, n_layer: 3, n_head: 3, n_positions: 128}}
  train:
    epochs: {epochs}
    batch_size: 16
    optimizer: {{learning_rate: 3.0e-3, weight_decay: 0.1}}
    schedule: {{warmup: 50}}
  distill:    # what the student learns from: the next tokens, and the teacher's logits
    - {{type: labels, weight: 0.2}}
    - {{type: logits, weight: 0.8, temperature: 1.0}}
  control: true    # train the student without the teacher too: what was the teacher worth?
gate:
  margin: 0.05    # the largest loss of bits per byte, as a share of the teacher's
"""


def text(data: Images | Documents, name: str, path: str, file: str) -> str:
    """A recipe's YAML.

    Args:
        data: the folder's contents.
        name: the recipe's name.
        path: the folder's path in the recipe.
        file: the recipe's file, for comments.

    Raises:
        InputError: there is too little data for any gate.
    """
    quoted = json.dumps(path, ensure_ascii=False)
    task = next(name for name in TASKS if data.kind == load(name).PROPOSED_FOR)
    sections = _images(data, quoted) if isinstance(data, Images) else _texts(data, quoted)
    # A folder called null, or with a line break in its name, must not change the meaning of the YAML.
    named, sentence = yaml.dump({"name": name}).strip(), " ".join(described(data).split())
    return HEAD.format(data=sentence, file=file, named=named, task=task) + sections


def described(data: Images | Documents) -> str:
    """A sentence that describes a folder's contents."""
    counts = f"{data.train:,} to train on and {data.test:,} to test on" if data.test else f"{data.train:,}"
    if isinstance(data, Documents):
        return f"{counts} documents (*{data.suffix}), {data.length / 1e6:,.3g} MB of text"
    labels = ", ".join(data.labels[:4]) + (", ..." if len(data.labels) > 4 else "")
    colour = "grey" if data.channels == 1 else "colour"
    return f"{counts} images in {colour} with {len(data.labels)} labels ({labels}), {data.side} pixels wide or high"


def notes(data: Images | Documents) -> list[str]:
    """Notes on contents that a user may not expect."""
    lines = [f"not read: {data.unread}"] if data.unread else []
    if isinstance(data, Documents):
        return lines
    lines += lookalikes(data.labels)
    if data.is_deep:
        lines.append("images in deeper folders have the label of the first one")
    if (margin := _margin(_tested(data))) and margin > CAREFUL:
        least = _least(CAREFUL)
        enough = f"{least} to test on" if data.test else f"{_in_all(least)} in all"
        lines.append(
            f"few images: a gate with a margin of {margin:g} lets a student pass that answers much worse than its "
            f"teacher; with {enough}, a margin of {CAREFUL:g} would do"
        )
    return lines


def _images(images: Images, path: str) -> str:
    tested = _tested(images)
    margin = _margin(tested)
    if margin is None:
        least = _least(MARGINS[-1])
        if images.test:
            raise InputError(f"{images.test} images to test on are too few: it takes {least}")
        raise InputError(
            f"{images.train} images are too few: a fifth of them, more or less, is tested on, and a gate takes {least} "
            f"for that; with {_in_all(least)} in all there are so many"
        )
    side = max(LEAST_SIDE, min(LARGEST_SIDE, images.side // 4 * 4))
    kind, teacher, student = _vit(side) if side < 16 else _resnet()
    return IMAGES.format(
        path=path,
        split=_split(images.test, SHARE),
        size=side,
        channels=images.channels,
        type=kind,
        teacher=teacher,
        student=student,
        epochs=_epochs(images.train, 64, 30),
        margin=margin,
        why=f"{tested:,} test images or more can show {_rounded(detectable_loss(tested, CONFIDENCE))}",
    )


def _tested(images: Images) -> int:
    """The number of test images; for a share by content, a number that is almost always reached."""
    return images.test or _by_content(images.train)


def _by_content(images: int) -> int:
    return max(0, math.floor(SHARE * images - SPREAD * math.sqrt(SHARE * (1 - SHARE) * images)))


def _margin(tested: int) -> float | None:
    """The smallest margin that this many test images can show; None if they are too few for any."""
    detectable = detectable_loss(tested, CONFIDENCE) if tested else math.inf
    return next((margin for margin in MARGINS if detectable <= margin), None)


def _least(margin: float) -> int:
    """The number of test images that can show a margin."""
    return next(images for images in itertools.count(1) if detectable_loss(images, CONFIDENCE) <= margin)


def _in_all(tested: int) -> int:
    """The number of images that yields this many test images."""
    return next(images for images in itertools.count(tested) if _by_content(images) >= tested)


def _rounded(loss: float) -> str:
    """A loss rounded up to a tenth of a point."""
    return f"{math.ceil(1000 * loss) / 1000:g}"


def _resnet() -> tuple[str, str, str]:
    """A ResNet, which learns more from few images than attention; a quarter of the side is left after the stem."""
    large = "{embedding_size: 64, hidden_sizes: [64, 128, 256], depths: [2, 2, 2], layer_type: basic}"
    small = "{embedding_size: 16, hidden_sizes: [16, 32, 64], depths: [1, 1, 1], layer_type: basic}"
    return "resnet", large, small


def _vit(side: int) -> tuple[str, str, str]:
    """A ViT, for images so small that a ResNet's stem would leave two pixels of them."""
    patch = 2 if side < 12 else 3
    large = f"num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 192, patch_size: {patch}"
    small = f"num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, patch_size: {patch}"
    return "vit", f"{{hidden_size: 96, {large}}}", f"{{hidden_size: 32, {small}}}"


def _texts(texts: Documents, path: str) -> str:
    least = least_examples(CONFIDENCE)
    share = max(SHARE, round(SPARE * least / texts.train, 2)) if texts.test is None else 0.0
    if share > 0.5 or (texts.test is not None and texts.test < least):
        raise InputError(
            f"{described(texts)}: too few, since the gate compares documents and needs {least} to test on"
            f"{'' if texts.test is not None else f', of {math.ceil(2 * SPARE * least)} in all'}. A file is a document; "
            "split long ones, such as a book into its chapters or pages"
        )
    sequences = texts.length // 3 // 128  # about three bytes a token
    return TEXTS.format(
        path=path,
        suffix=texts.suffix,
        split=_split(texts.test, share),
        vocabulary=2048 if texts.length < 4e6 else 4096,
        epochs=_epochs(sequences, 16, 10),
    )


def _split(test: int | None, share: float) -> str:
    if test:
        return "# its own folder test/ is the test split; nothing of it is trained on"
    return f"test: {share:g}    # the share to test on, chosen by content"


def _epochs(examples: int, batch_size: int, limit: int) -> int:
    """The number of epochs for about STEPS steps."""
    return max(1, min(limit, round(STEPS * batch_size / max(1, examples))))
