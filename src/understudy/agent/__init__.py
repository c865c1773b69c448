"""Code that runs on a node of a job: the ranks, the agent that starts and supervises them, the node cache."""
