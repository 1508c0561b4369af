"""What the devices do: launches and idle intervals."""
