"""What the collector answers, one file a kind of question."""
