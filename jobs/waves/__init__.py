"""Comparisons whose samples are drawn in waves until they are decided: `jobs suite FILE --until-decided`."""
