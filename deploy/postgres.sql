-- Create a database for the collector, and roles with no other rights. Run once, as a superuser:
--   psql --set ON_ERROR_STOP=1 --file postgres.sql
--   psql --command '\password offaxis_collector'

CREATE ROLE offaxis_collector LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION
    CONNECTION LIMIT 60;  -- a process opens up to 18
CREATE ROLE offaxis_backup LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION
    CONNECTION LIMIT 2;

CREATE DATABASE offaxis ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE offaxis FROM PUBLIC;
GRANT CONNECT ON DATABASE offaxis TO offaxis_collector, offaxis_backup;

\connect offaxis

-- The collector creates and migrates its tables, in this schema only.
REVOKE ALL ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA offaxis AUTHORIZATION offaxis_collector;
ALTER ROLE offaxis_collector IN DATABASE offaxis SET search_path = offaxis;

-- Backups only read.
GRANT USAGE ON SCHEMA offaxis TO offaxis_backup;
ALTER DEFAULT PRIVILEGES FOR ROLE offaxis_collector IN SCHEMA offaxis
    GRANT SELECT ON TABLES TO offaxis_backup;
ALTER DEFAULT PRIVILEGES FOR ROLE offaxis_collector IN SCHEMA offaxis
    GRANT SELECT ON SEQUENCES TO offaxis_backup;
ALTER ROLE offaxis_backup IN DATABASE offaxis SET default_transaction_read_only = on;

-- Never log statements, parameters or details of the collector, whatever the server's settings.
ALTER ROLE offaxis_collector IN DATABASE offaxis SET log_statement = 'none';
ALTER ROLE offaxis_collector IN DATABASE offaxis SET log_min_duration_statement = -1;
ALTER ROLE offaxis_collector IN DATABASE offaxis SET log_min_error_statement = 'panic';
ALTER ROLE offaxis_collector IN DATABASE offaxis SET log_error_verbosity = 'terse';

-- An acknowledged report is on the disk, whatever the server's default.
ALTER ROLE offaxis_collector IN DATABASE offaxis SET synchronous_commit = 'on';
