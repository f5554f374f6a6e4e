"""What people look at: pages of the demo, of studies, of recommendations and of audits."""
