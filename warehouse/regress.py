"""Former name of `python -m warehouse.nightly`, kept until 1.0."""

from warehouse.nightly.__main__ import main

if __name__ == "__main__":
    main(prog_name="python -m warehouse.regress")
