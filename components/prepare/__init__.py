"""Turns records into arrays that training maps into memory."""
