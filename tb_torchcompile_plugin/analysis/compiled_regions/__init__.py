"""What do compiled regions take when they run, what goes around them, and what stays eager?"""
