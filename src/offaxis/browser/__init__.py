"""What runs in a browser: the client, the dashboard and the live demo, and what serves the demo."""
