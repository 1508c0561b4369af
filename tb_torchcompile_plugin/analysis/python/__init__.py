"""Where did Python itself take the time: in the program's functions or in those of libraries?"""
