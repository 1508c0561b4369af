"""What torch.export was called for, and what it had to assume."""
