"""What commands show: text and tables for people, one JSON object for programs, and progress."""
