"""Models on existing servers: addresses, requests, replies, and supported features."""
