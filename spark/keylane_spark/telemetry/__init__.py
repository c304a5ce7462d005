"""What the job counts and reports."""
