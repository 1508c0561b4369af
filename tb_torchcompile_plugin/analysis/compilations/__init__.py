"""What was compiled, from where, and what is known of each compilation?"""
