"""KFP components: a folder each, with a body of a few lines around one step of the package."""
