"""What is judged: configurations of one group, layouts of several, and what they cover."""
