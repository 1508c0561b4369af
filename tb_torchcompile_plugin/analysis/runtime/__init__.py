"""What the program did at run time: steps, kernels, operators, memory, GPU idle time, the lines of code behind them."""
