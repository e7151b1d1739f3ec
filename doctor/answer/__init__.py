"""What is found, put in order, with the commands that fix it: the answer."""
