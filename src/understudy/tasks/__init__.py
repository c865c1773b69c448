"""The tasks, a module each: everything that differs between one task and another."""
