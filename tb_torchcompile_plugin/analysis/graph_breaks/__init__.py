"""Where do graphs break, why, and what does it cost at run time?"""
