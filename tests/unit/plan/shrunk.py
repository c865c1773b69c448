"""recipes/llm.yaml as a laptop runs it: the same recipe, shrunk by overrides alone."""

from tests import ROOT

SIZES = {
    "teacher.model.config.hidden_size": "64",
    "teacher.model.config.intermediate_size": "96",
    "teacher.model.config.num_hidden_layers": "4",
    "teacher.model.config.num_attention_heads": "4",
    "teacher.model.config.num_key_value_heads": "4",
    "student.model.config.hidden_size": "32",
    "student.model.config.intermediate_size": "48",
    "student.model.config.num_hidden_layers": "2",
    "student.model.config.num_attention_heads": "4",
    "student.model.config.num_key_value_heads": "4",
    "data.text.sequence_length": "32",
    "data.text.tokenizer.vocab_size": "512",
    "resources.teacher.nodes": "1",
    "resources.teacher.processes": "4",
    "resources.distill.nodes": "1",
    "resources.distill.processes": "2",
}
RUN = {
    "data.source.path": str(ROOT / "src" / "understudy"),
    "data.source.glob": "'**/*.py'",
    "data.source.follow_links": "true",  # to pipelines/ and components/
    "data.validation": "0.2",
    "data.test": "0.3",
    "teacher.train.batch_size": "32",
    "student.train.batch_size": "32",
    "resources.teacher.device": "cpu",
    "resources.distill.device": "cpu",
}


def overrides(*settings: dict[str, str]) -> list[str]:
    """The settings as options of the command."""
    values = {name: value for setting in settings for name, value in setting.items()}
    return [option for name, value in values.items() for option in ("--set", f"{name}={value}")]
