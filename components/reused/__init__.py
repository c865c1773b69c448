"""Decides from paired statistics whether the student is good enough; fails closed."""
