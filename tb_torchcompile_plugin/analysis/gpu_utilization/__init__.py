"""How busy is each GPU, why does it idle, and what do launches take?"""
