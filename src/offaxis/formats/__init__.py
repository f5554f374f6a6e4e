"""What is written and read: release files, reports, and the documents a publisher signs."""
