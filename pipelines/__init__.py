"""KFP pipelines, built from a recipe: their steps, the order, and the images."""
