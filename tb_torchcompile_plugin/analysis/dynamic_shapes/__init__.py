"""Which sizes are dynamic, where each became so, which came, and what would keep torch from compiling for each?"""
