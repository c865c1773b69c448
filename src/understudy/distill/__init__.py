"""Distillation: what a student learns from, besides the labels."""
