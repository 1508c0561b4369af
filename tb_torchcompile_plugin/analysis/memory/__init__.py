"""What was allocated, by whom, and what lives at the peak?"""
