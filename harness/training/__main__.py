"""Refuses the former name of the toy pair's training."""

import sys

if __name__ == "__main__":
    sys.stderr.write(
        "error: the training of the demo's toy pair is now `python -m tools.demo_pair` (or `make train-demo`); "
        "SCoT's trainings are `python -m harness.train align` and `python -m harness.train select`\n"
    )
    sys.exit(2)
