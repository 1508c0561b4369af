"""Where does each step go, how much do steps differ, and why are some slow?"""
