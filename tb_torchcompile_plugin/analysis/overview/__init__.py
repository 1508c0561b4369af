"""The rows that several panels begin with: of each span, and of what its worker compiled."""
