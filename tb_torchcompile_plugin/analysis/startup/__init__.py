"""Where does the time go until the first steady step, and what would a warm start save of it?"""
