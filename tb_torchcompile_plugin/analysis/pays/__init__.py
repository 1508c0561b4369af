"""Does torch.compile pay: what it cost, what a step gains by it, when the two are even, and why it is not more."""
