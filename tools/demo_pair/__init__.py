"""Training of the demo's toy draft and target, from random weights, on generated word problems."""
