#!/bin/sh
# Back up a collector's database while it runs, and delete back-ups that are too old.
#
#   backup.sh DATABASE FOLDER DAYS
#
# DATABASE is the collector's: sqlite:///FILE or postgresql://… (as offaxis_backup; a password comes
# from PGPASSFILE). What is withdrawn or deleted lives on in back-ups for up to DAYS: reports are gone
# everywhere keep_days + DAYS after their round has closed.
set -eu
umask 077

if [ $# -ne 3 ]; then
    echo "usage: backup.sh DATABASE FOLDER DAYS" >&2
    exit 2
fi
database=$1 folder=$2 days=$3
case $days in
    '' | *[!0-9]*) echo "backup.sh: DAYS must be a whole number, got $days" >&2; exit 2 ;;
esac
[ -d "$folder" ] || { echo "backup.sh: there is no folder $folder" >&2; exit 2; }

case $database in
    sqlite:///*) ending=db ;;
    postgresql://* | postgres://*) ending=dump ;;
    *) echo "backup.sh: DATABASE must be sqlite:///FILE or postgresql://…" >&2; exit 2 ;;
esac
# The draft has another ending until it is whole.
name=$folder/offaxis-$(date -u +%Y%m%dT%H%M%SZ).$ending
draft=$name.draft
trap 'rm -f "$draft"' EXIT

if [ $ending = db ]; then
    # One consistent state, log and all; uploads go on meanwhile. Copying the file does not do that.
    "${PYTHON:-python3}" - "${database#sqlite:///}" "$draft" <<'PYTHON'
import pathlib, sqlite3, sys

source = sqlite3.connect(pathlib.Path(sys.argv[1]).absolute().as_uri() + "?mode=ro", uri=True)
copy = sqlite3.connect(sys.argv[2])
source.backup(copy)
copy.execute("PRAGMA journal_mode = DELETE")
found = copy.execute("PRAGMA integrity_check").fetchone()[0]
copy.close()
sys.exit(None if found == "ok" else f"backup.sh: the copy is damaged: {found}")
PYTHON
else
    pg_dump --format=custom --no-owner --no-privileges --schema=offaxis --file="$draft" "$database"
    pg_restore --list "$draft" >/dev/null
fi
sync "$draft"
mv "$draft" "$name"

find "$folder" -maxdepth 1 -name 'offaxis-*' -type f -mmin "+$((days * 1440))" -delete
echo "$name"
