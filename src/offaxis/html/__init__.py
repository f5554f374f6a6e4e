"""HTML pages of audits and recommendations, and what all pages share."""
