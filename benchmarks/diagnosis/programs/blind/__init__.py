"""Programs that were written by somebody who knew none of the rules, and recorded before any of them changed."""
