"""What every stage needs: errors, processes, downloads, the folders of the project, readers of foreign files."""
