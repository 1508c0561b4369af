"""What belongs to which compilation: regions, their owners, resumes, eager operators."""
