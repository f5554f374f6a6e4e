"""Runs the migrations on the connection in the configuration."""

from alembic import context

from offaxis.collector.database import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
context.run_migrations()
