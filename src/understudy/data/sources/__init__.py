"""Where records come from: a module for each source."""
