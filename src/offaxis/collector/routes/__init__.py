"""The collector's HTTP endpoints: reports, publishing, analysis, facts and pages."""
