"""Models: described by a recipe, built, fetched, saved, loaded; and how large they are."""
