"""Every name that torch or a library writes and may rename, and every rule about such names, once."""
