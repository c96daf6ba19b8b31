"""Algorithms over a draft and a target model, one file each."""
