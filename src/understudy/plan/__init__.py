"""What a recipe takes before anything runs: memory, time, cost; found by running the real loop without memory."""
