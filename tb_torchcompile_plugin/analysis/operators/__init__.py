"""What do operators and Python functions take?"""
