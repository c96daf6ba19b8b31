"""Runs side by side: what differs between their manifests, and what differs between their results."""
