"""Objectives: the terms of a loss, a file each, and how the loss is computed in pieces and in one pass."""
