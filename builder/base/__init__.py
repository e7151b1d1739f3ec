"""What every stage stands on: errors, processes, the project's folders, and readers of files from outside."""
