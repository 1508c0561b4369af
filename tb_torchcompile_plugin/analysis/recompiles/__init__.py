"""What was compiled again, which guard failed, and when?"""
