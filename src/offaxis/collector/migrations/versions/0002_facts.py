"""Add facts of a release, and moments with shares of symbols per group and the number of reports.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; delete moments whose reports still exist, so that they are recomputed."""
    for name in ("curve", "audit"):
        op.add_column("release", sa.Column(name, sa.Text))
    op.add_column("moments", sa.Column("counted", sa.Integer))
    op.execute("DELETE FROM moments WHERE round IN (SELECT id FROM round WHERE deleted_at IS NULL)")


def downgrade() -> None:
    """Drop the columns; version 0001 ignores what else the moments contain."""
    op.drop_column("moments", "counted")
    for name in ("audit", "curve"):
        op.drop_column("release", name)
