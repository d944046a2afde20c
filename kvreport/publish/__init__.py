"""What the site publishes for programs: JSON, the dataset's files, feeds, the changes between releases."""
