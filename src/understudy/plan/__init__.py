"""Memory, time and cost of a recipe before anything runs, estimated by running the real loop without memory."""
