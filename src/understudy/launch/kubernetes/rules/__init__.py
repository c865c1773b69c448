"""The rules of the diagnosis, by what they look at: pure functions from job status and history to a decision."""
