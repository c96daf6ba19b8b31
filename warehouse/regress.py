"""Former name of `python -m warehouse.nightly`, removed in the next release."""

from warehouse.nightly.__main__ import main

if __name__ == "__main__":
    main(prog_name="python -m warehouse.regress")
