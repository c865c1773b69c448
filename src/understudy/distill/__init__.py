"""Distillation objectives: a student's loss on a teacher's outputs and the labels."""
