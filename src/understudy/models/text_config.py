"""The part of a composite transformers configuration that is about text, and the part of its network.

A model that reads pictures or sound, too (gemma3, llama4, mllama), has a configuration for each: its vocabulary, its
layers and its positions are in the text's. What reads text alone is a language model like others.
"""

from typing import Any


def text_config(config: Any) -> Any:
    """The configuration of what reads and writes text: a part of a composite one, otherwise the whole.

    Args:
        config: a PreTrainedConfig.
    """
    return config if hasattr(config, "vocab_size") else config.get_text_config(decoder=True)


def language_config(config: Any) -> Any:
    """The configuration of a language model: the text's, where transformers has a model for that alone.

    Args:
        config: a PreTrainedConfig that AutoModelForCausalLM takes.
    """
    from transformers import AutoModelForCausalLM

    text = text_config(config)
    return text if type(text) in AutoModelForCausalLM._model_mapping else config


def taken_by(kind: type[Any], config: Any) -> Any:
    """The configuration that a network's class takes: the whole one, or that of its text."""
    text = text_config(config)
    return text if isinstance(text, kind.config_class) else config


def built_from(own: Any, whole: Any) -> Any:
    """Of which of two configurations AutoModelForCausalLM builds a network: its own, or the one that it is a part of.

    Args:
        own: the network's.
        whole: the one that it was loaded with.
    """
    from transformers import AutoModelForCausalLM

    return own if type(own) is type(whole) or type(own) in AutoModelForCausalLM._model_mapping else whole


def language_model(net: Any) -> Any:
    """The part of a network that reads and writes text alone, as a network of its own; the weights are shared.

    Args:
        net: of transformers.

    Raises:
        ValueError: the network has no such part in one piece.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = language_config(net.config)
    if config is net.config:
        return net
    with torch.device("meta"):
        alone = AutoModelForCausalLM.from_config(config)
    body = [module for module in net.modules() if type(module) is type(alone.base_model)]
    head = net.get_output_embeddings()
    if len(body) != 1 or head is None or type(alone) is type(net):
        raise ValueError(f"{type(net).__name__} has no {type(alone.base_model).__name__} with a head in one piece")
    setattr(alone, alone.base_model_prefix, body[0])
    alone.set_output_embeddings(head)
    if lacking := [name for name, weight in alone.named_parameters() if weight.is_meta]:
        raise ValueError(f"{type(net).__name__} has no {', '.join(lacking[:3])}")
    return alone.train(net.training)
