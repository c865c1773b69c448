"""Ours on one GPU beside loops by hand, Liger and TRL."""
