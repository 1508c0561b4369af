"""What a job asks of one of its ranks, small enough to lie beside its trace: a digest."""
