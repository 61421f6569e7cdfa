"""Speed and memory beside a plain implementation of the equations, as ratios on one machine."""
