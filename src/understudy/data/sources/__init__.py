"""The sources of records: a module for each."""
