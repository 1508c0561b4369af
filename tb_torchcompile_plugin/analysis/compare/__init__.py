"""What is different between two spans, and is it more than noise?"""
