"""Programs with one planted cause each, recorded and timed on a GPU: what the first finding must name."""
