"""The rules of the diagnosis, by subject: pure functions from job status and history to a decision."""
