"""The text part of a composite (multimodal) transformers configuration and of its network.

A model that also reads images or audio (gemma3, llama4, mllama) has a configuration for each. Vocabulary, layers and
positions are in the text configuration. The text part of the network alone is an ordinary language model.
"""

from typing import Any


def text_config(config: Any) -> Any:
    """The text part of a composite configuration; any other configuration itself.

    Args:
        config: a PreTrainedConfig.
    """
    return config if hasattr(config, "vocab_size") else config.get_text_config(decoder=True)


def language_config(config: Any) -> Any:
    """The configuration of the language model: the text part, if transformers has a model for text alone.

    Args:
        config: a PreTrainedConfig that AutoModelForCausalLM takes.
    """
    from transformers import AutoModelForCausalLM

    text = text_config(config)
    return text if type(text) in AutoModelForCausalLM._model_mapping else config


def class_config(network_class: type[Any], config: Any) -> Any:
    """The configuration that a network's class takes: the whole one, or its text part."""
    text = text_config(config)
    return text if isinstance(text, network_class.config_class) else config


def auto_config(config: Any, loaded: Any) -> Any:
    """The configuration from which AutoModelForCausalLM builds a network: that of the network, or the composite one.

    Args:
        config: the network's configuration.
        loaded: the configuration that the network was loaded with.
    """
    from transformers import AutoModelForCausalLM

    return config if type(config) is type(loaded) or type(config) in AutoModelForCausalLM._model_mapping else loaded


def language_model(net: Any) -> Any:
    """The text part of a transformers network as a separate network that shares its weights.

    Args:
        net: the network; it is returned itself if it reads text alone.

    Raises:
        ValueError: the text part is not one module with a head.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = language_config(net.config)
    if config is net.config:
        return net
    with torch.device("meta"):
        text_model = AutoModelForCausalLM.from_config(config)
    body = [module for module in net.modules() if type(module) is type(text_model.base_model)]
    head = net.get_output_embeddings()
    if len(body) != 1 or head is None or type(text_model) is type(net):
        raise ValueError(f"{type(net).__name__} has no {type(text_model.base_model).__name__} with a head in one piece")
    setattr(text_model, text_model.base_model_prefix, body[0])
    text_model.set_output_embeddings(head)
    if missing := [name for name, weight in text_model.named_parameters() if weight.is_meta]:
        raise ValueError(f"{type(net).__name__} has no {', '.join(missing[:3])}")
    return text_model.train(net.training)
