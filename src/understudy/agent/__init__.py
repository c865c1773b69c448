"""What runs on a node of a job: the ranks, the agent that starts and watches them, the node cache."""
