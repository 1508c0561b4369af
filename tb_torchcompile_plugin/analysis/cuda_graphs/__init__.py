"""Did CUDA graphs serve: recorded, replayed, recorded again, skipped?"""
