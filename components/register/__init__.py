"""Records the run in MLflow, and the student as challenger when the gate approved it."""
