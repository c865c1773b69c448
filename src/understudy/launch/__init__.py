"""Jobs: the specification of a step that needs its own processes, and who runs it."""
