"""Reads the source once into immutable records, split by content."""
