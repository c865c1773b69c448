"""KFP pipelines: which steps, in which order, on which images. Built from a recipe."""
