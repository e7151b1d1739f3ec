"""One look a day at what a stack rests on: its certificates, and what is new upstream."""
