"""Small known worlds with text faces: exact values for every policy, and a benchmark of the common trainer."""
