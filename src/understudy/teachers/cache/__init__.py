"""Cached logits: a teacher's distributions in files, compressed, read at random by example.

sparse.py reduces a distribution to a few entries. tables.py and rans.py code them as bytes. parts.py writes the files
of a folder, and reader.py reads them. docs/how-it-works/logits.md specifies the format.
"""
