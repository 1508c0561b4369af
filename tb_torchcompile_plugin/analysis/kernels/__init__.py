"""Which kernels take the time, what are they of, and how near are they to the device's peak?"""
