"""How a pretrained model is trained with LoRA: which of its layers get an adapter, and how large that is."""

from typing import Annotated, Literal

from pydantic import Field

from understudy.recipe.section import Fraction, Positive, Section


class Lora(Section):
    """Low-rank adapters (Hu et al. 2022): they alone are trained, and are merged into the frozen model at the end."""

    rank: Positive = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    """What an adapter adds is multiplied by alpha / rank."""
    dropout: Fraction = 0.0
    """Of an adapter's inputs."""
    modules: Annotated[tuple[str, ...], Field(min_length=1)]
    """The linear layers that get one: their names, or the ends of these (q_proj), with * for any part."""
    frozen_precision: Literal["fp32", "nf4"] = "fp32"
    """What the weights of frozen linear layers are kept in; nf4 is QLoRA (Dettmers et al. 2023)."""
    whole: tuple[str, ...] = ()
    """Modules that are trained as ever, such as the new last layer of a classifier."""

    @property
    def kept_apart(self) -> bool:
        """Whether adapters are all that is trained, and so can be kept without the model."""
        return not self.whole
