"""Speed and memory compared with a plain implementation of the equations, on one machine."""
