"""Why a step takes as long as it does, which fixes apply, and what each would save."""
