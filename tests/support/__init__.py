"""What the tests start, and how they speak to it."""
