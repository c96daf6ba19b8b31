"""What is asked of Slurm and what a cluster profile says."""
