"""Training: one loop for teacher, student and control, on one process or many."""
