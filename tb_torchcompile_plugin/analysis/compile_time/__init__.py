"""Where does compile time go: phases, functions, cache lookups, autotuning?"""
