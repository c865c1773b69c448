"""Tests that take minutes and whose parts are in the other folders: whole recipes, kills, state machines."""
