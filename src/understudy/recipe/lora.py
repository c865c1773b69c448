"""LoRA training of a pretrained model: the layers that get an adapter, and the adapters' size."""

from typing import Annotated, Literal

from pydantic import Field

from understudy.recipe.section import Fraction, Positive, Section


class Lora(Section):
    """Low-rank adapters (Hu et al. 2022): they alone are trained, and are merged into the frozen model at the end."""

    rank: Positive = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    """An adapter's output is multiplied by alpha / rank."""
    dropout: Fraction = 0.0
    """Of an adapter's inputs."""
    modules: Annotated[tuple[str, ...], Field(min_length=1)]
    """The linear layers that get an adapter: names, or the ends of names (q_proj), with * as a wildcard."""
    frozen_precision: Literal["fp32", "nf4"] = "fp32"
    """Precision of the weights of frozen linear layers; nf4 is QLoRA (Dettmers et al. 2023)."""
    whole: tuple[str, ...] = ()
    """Modules that are trained in full, such as the new last layer of a classifier."""

    @property
    def kept_apart(self) -> bool:
        """Whether adapters alone are trained, and so can be saved without the model."""
        return not self.whole
