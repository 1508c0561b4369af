"""Answers that are bounded and addressed: rows have ids, tables are cut to what fits, an id is looked up."""
