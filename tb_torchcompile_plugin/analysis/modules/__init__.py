"""What does each nn.Module take, on the host and on the device?"""
