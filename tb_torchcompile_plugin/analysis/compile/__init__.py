"""What torch.compile did: compilations, compile time, start-up and caches, graph breaks, recompiles, dynamic shapes."""
