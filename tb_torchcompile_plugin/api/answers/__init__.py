"""Limited answers with ids: rows have ids, tables are shortened to a size, ids are resolved."""
