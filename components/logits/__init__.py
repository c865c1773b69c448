"""Caches the logits of a teacher."""
