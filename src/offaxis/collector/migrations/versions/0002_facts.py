"""Facts of a release, and moments that know the symbols of groups and how many they count.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, and let moments be computed again where their reports are still there."""
    for name in ("curve", "audit"):
        op.add_column("release", sa.Column(name, sa.Text))
    op.add_column("moments", sa.Column("counted", sa.Integer))
    op.execute("DELETE FROM moments WHERE round IN (SELECT id FROM round WHERE deleted_at IS NULL)")


def downgrade() -> None:
    """Drop the columns; what moments know beyond 0001 is not read by it."""
    op.drop_column("moments", "counted")
    for name in ("audit", "curve"):
        op.drop_column("release", name)
