package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// errServer: the tables belong to LangGraph Server, whose schema is not public.
var errServer = errors.New("the database is one of LangGraph Server (it has its tables assistant, thread and run), and is not written to: " +
	"name another with --database-url, and bring its threads over with understudy import")

// isServer reads the catalog, which every role may read. to_regclass('public.thread') fails for a
// role without USAGE on public.
const isServer = `SELECT EXISTS (
	SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p') AND c.relname IN ('assistant', 'thread', 'run') AND n.nspname = ANY (current_schemas(false) || 'public'::name)
	GROUP BY n.nspname HAVING count(*) = 3)`

// refuseServer returns errServer if a schema in use, or public, has the tables of LangGraph
// Server.
func refuseServer(ctx context.Context, conn *pgx.Conn) error {
	var found bool
	if err := conn.QueryRow(ctx, isServer).Scan(&found); err != nil {
		return err
	}
	if found {
		return errServer
	}
	return nil
}

// checkSearchPath returns an error if the session lacks the search_path of the address or
// Options.Schema. A pooler such as PgBouncer may silently drop settings, and all tables would be
// created in another schema.
func checkSearchPath(ctx context.Context, conn *pgx.Conn) error {
	wanted := searchPath(conn.Config().RuntimeParams)
	if wanted == "" {
		return nil
	}
	var path string
	if err := conn.QueryRow(ctx, "SHOW search_path").Scan(&path); err != nil {
		return err
	}
	if schemas(path) != schemas(wanted) {
		return fmt.Errorf("the search_path is %s, and the address asks for %s: a pooler between here and Postgres dropped the setting; "+
			"use a direct address, or set it for the role: ALTER ROLE … SET search_path = %s", path, wanted, wanted)
	}
	return nil
}

// optionPath finds search_path in the options parameter of an address: -c search_path=a,b or
// --search_path=a,b, with spaces escaped by a backslash.
var optionPath = regexp.MustCompile(`(?:^|\s)(?:-c\s*|--)search_path=((?:\\.|[^\s\\])*)`)

// searchPath returns the search_path that a connection requests; "" if it leaves the choice to the
// database.
func searchPath(params map[string]string) string {
	if path := params["search_path"]; path != "" {
		return path
	}
	all := optionPath.FindAllStringSubmatch(params["options"], -1)
	if len(all) == 0 {
		return ""
	}
	return regexp.MustCompile(`\\(.)`).ReplaceAllString(all[len(all)-1][1], "$1")
}

// schemas normalizes a search_path for comparison: Postgres and poolers quote and space it
// differently.
func schemas(path string) string {
	parts := strings.Split(path, ",")
	for i, p := range parts {
		parts[i] = strings.Trim(strings.TrimSpace(p), `"`)
	}
	return strings.Join(parts, ",")
}

// Room is how many connections a role may open. Behind a pooler it is what the pooler may open for
// all of its clients.
type Room struct {
	// Allowed is the number of connections of ordinary roles in all, with the limits of role and
	// database.
	Allowed int
	// Used is how many of them are open now.
	Used int
}

const askRoom = `SELECT least(
		current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int - coalesce(current_setting('reserved_connections', true)::int, 0),
		(SELECT CASE WHEN rolconnlimit < 0 THEN 1000000 ELSE rolconnlimit END FROM pg_roles WHERE rolname = current_user),
		(SELECT CASE WHEN datconnlimit < 0 THEN 1000000 ELSE datconnlimit END FROM pg_database WHERE datname = current_database())),
	(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())`

// room reads the limits and current use.
func room(ctx context.Context, conn *pgx.Conn) (r Room, err error) {
	err = conn.QueryRow(ctx, askRoom).Scan(&r.Allowed, &r.Used)
	return r, err
}

// Short describes the problem if a server with so many connections, and one more to listen, may
// find none left; "" if they fit.
func (r Room) Short(connections int) string {
	needed := connections + 1
	switch {
	case needed > r.Allowed:
		return fmt.Sprintf("this server opens up to %d connections, and Postgres allows %d", needed, r.Allowed)
	case needed > r.Allowed-r.Used:
		return fmt.Sprintf("this server opens up to %d connections, and of the %d that Postgres allows %d are in use by others", needed, r.Allowed, r.Used)
	}
	return ""
}
