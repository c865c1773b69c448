"""understudy: one recipe in, a proven student model in the registry out."""

__version__ = "0.1.0"
